# The SQL tests, in the order of their numbers. Each runs alone as well:
# make check-regress REGRESS=050_push
REGRESS ?= $(sort $(patsubst regress/sql/%.sql,%,$(wildcard regress/sql/*.sql)))
REGRESS_OPTS = --load-extension=queen --encoding=UTF8 --no-locale
ISOLATION ?= $(sort $(patsubst regress/isolation/specs/%.spec,%,$(wildcard regress/isolation/specs/*.spec)))
ISOLATION_OPTS = --load-extension=queen --encoding=UTF8 --no-locale

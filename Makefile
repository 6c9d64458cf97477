# The front door: both programs, their tests, and a private server to try them on.
# The extension itself is built by PGXS (extension.mk), the front end here.
# "make help" prints what is indented here:
#
#   make                   builds queen.so and build/queen-frontend
#   make up                starts a private PostgreSQL and a front end, and creates them first
#   make down              stops both; the data stays
#   make env               prints the variables that reach them: eval "$(make -s env)"; psql
#   make demo              streams payloads through two consumer groups and checks the counts
#   make check             every test; nothing is written outside the checkout
#   make bench             every comparison of bench/README.md in short
#   make install           into the PostgreSQL that PG_CONFIG names (DESTDIR is honoured)
#   make uninstall         takes it out again
#
# For changes:
#
#   make deps              installs the packages that all of this needs, as root
#   make check-unit        the common library and what stands alone
#   make check-regress     the SQL functions; REGRESS=050_push runs one test
#   make check-isolation   concurrent sessions; ISOLATION=NAME
#   make check-tap         servers and front ends; PROVE_TESTS=regress/t/100_push.pl
#   make check-ubsan       the SQL suites on a queen.so with assertions and a sanitizer
#   make fuzz-json         fuzzes for FUZZ_SECONDS=60; also -frame, -spoolfile, -jwt
#   make lint              clang-format, cppcheck, clang-tidy
#   make asan              the front end with sanitizers: build/asan/queen-frontend
#   make load              the load generator of the TAP tests: build/queen-load
#   make installcheck      the SQL suites on a server that runs and has queen installed
#   make clean             removes what was built, and the tests' leavings
#   make dist              packs what is committed into queen-VERSION.tar.gz

BUILD = build
PG_CONFIG ?= $(firstword $(wildcard /usr/lib/postgresql/15/bin/pg_config) pg_config)
PGXS = $(shell $(PG_CONFIG) --pgxs)
VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" queen.control)
prefix ?= /usr/local
export PG_CONFIG

EXTENSION_MAKE = $(MAKE) --no-print-directory -f extension.mk

WARNINGS = -Wall -Wextra -Wshadow -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
HARDENING = -fstack-protector-strong -fPIE
C_CPPFLAGS = -D_GNU_SOURCE -DQUEEN_VERSION='"$(VERSION)"' -Isrc/common -I$(shell $(PG_CONFIG) --includedir)
C_CFLAGS = -std=c11 -g -pthread $(WARNINGS) $(HARDENING) $(CFLAGS)
FRONTEND_LDFLAGS = -pie -Wl,-z,relro,-z,now -L$(shell $(PG_CONFIG) --libdir) $(LDFLAGS)
FRONTEND_LIBS = -lpq -lmicrohttpd -levent_core -lzstd -lxxhash -ljansson -lgnutls -lcurl -pthread

RELEASE_FLAGS = -O2 -D_FORTIFY_SOURCE=2
ASAN_FLAGS = -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
UBSAN_COPT = -DUSE_ASSERT_CHECKING -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=undefined

COMMON_SOURCES = $(wildcard src/common/*.c)
FRONTEND_SOURCES = $(wildcard src/frontend/*.c) $(COMMON_SOURCES)
RELEASE_OBJECTS = $(FRONTEND_SOURCES:src/%.c=$(BUILD)/frontend/%.o)
ASAN_OBJECTS = $(FRONTEND_SOURCES:src/%.c=$(BUILD)/asan/%.o)

all: extension frontend
help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))
extension:
	@$(PG_CONFIG) --pgxs >/dev/null || { echo "no pg_config: run make deps" >&2; exit 1; }
	+@$(EXTENSION_MAKE) all
frontend: $(BUILD)/queen-frontend
asan: $(BUILD)/asan/queen-frontend

$(BUILD)/queen-frontend: $(RELEASE_OBJECTS)
	$(CC) $(C_CFLAGS) $(RELEASE_FLAGS) $^ $(FRONTEND_LDFLAGS) $(FRONTEND_LIBS) -o $@
$(BUILD)/asan/queen-frontend: $(ASAN_OBJECTS)
	$(CC) $(C_CFLAGS) $(ASAN_FLAGS) $^ $(FRONTEND_LDFLAGS) $(FRONTEND_LIBS) -o $@
$(BUILD)/frontend/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(RELEASE_FLAGS) -MMD -MP -c $< -o $@
$(BUILD)/asan/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(ASAN_FLAGS) -MMD -MP -c $< -o $@
-include $(RELEASE_OBJECTS:.o=.d) $(ASAN_OBJECTS:.o=.d)

install: all
	+@$(EXTENSION_MAKE) install
	install -D -m 755 $(BUILD)/queen-frontend "$(DESTDIR)$(prefix)/bin/queen-frontend"
uninstall:
	+@$(EXTENSION_MAKE) uninstall
	rm -f "$(DESTDIR)$(prefix)/bin/queen-frontend"
clean:
	+@$(EXTENSION_MAKE) clean
	rm -rf $(BUILD)

# Set-up of a machine and of a private server.
deps:
	@scripts/deps
up down env:
	@scripts/$@
demo:
	@[ -n "$$QUEEN_URL" ] || eval "$$(scripts/env)"; scripts/demo

# Tests. check-unit is defined in the unit tests' own makefile.
include regress/unit/unit.mk
include regress/regress.mk
include regress/load/load.mk
include bench/bench.mk

CHECK_DIR = $(CURDIR)/$(BUILD)/check
PGXS_TEST = $(dir $(PGXS))../test
TEMP_INSTANCE = --bindir="$$(scripts/pgtree $(CHECK_DIR)/pg)" --temp-config=regress/postgresql.conf

check:
	@scripts/check unit regress isolation tap
check-regress check-isolation check-tap:
	@scripts/check $(@:check-%=%)
# The SQL suites on a queen.so with assertions and the sanitizer of undefined behaviour. A finding ends
# the server process, so a test fails. Its objects are of no use to other builds, nor theirs to it.
check-ubsan:
	+@$(EXTENSION_MAKE) clean
	COPT='$(UBSAN_COPT)' scripts/check regress isolation; status=$$?; $(EXTENSION_MAKE) clean; exit $$status

# What scripts/check runs, as a user that PostgreSQL accepts.
check-tree: all
	+@scripts/pgtree $(CHECK_DIR)/pg >/dev/null
	+@$(MAKE) -s install DESTDIR=$(CHECK_DIR)/pg
suite-unit: check-unit
suite-regress: check-tree
	@rm -rf $(CHECK_DIR)/regress && mkdir -p $(CHECK_DIR)/regress
	$(PGXS_TEST)/regress/pg_regress $(TEMP_INSTANCE) --temp-instance=$(CHECK_DIR)/regress/server \
		--inputdir=regress --outputdir=$(CHECK_DIR)/regress $(REGRESS_OPTS) $(REGRESS)
suite-isolation: check-tree
	@rm -rf $(CHECK_DIR)/isolation && mkdir -p $(CHECK_DIR)/isolation
	$(PGXS_TEST)/isolation/pg_isolation_regress $(TEMP_INSTANCE) --temp-instance=$(CHECK_DIR)/isolation/server \
		--inputdir=regress/isolation --outputdir=$(CHECK_DIR)/isolation $(ISOLATION_OPTS) $(ISOLATION)
suite-tap: check-tree load bench-programs
	@rm -rf $(CHECK_DIR)/tap && mkdir -p $(CHECK_DIR)/tap
	PATH="$$(scripts/pgtree $(CHECK_DIR)/pg):$$PATH" TESTDIR=$(CHECK_DIR)/tap \
		PG_REGRESS=$(abspath $(PGXS_TEST))/regress/pg_regress \
		QUEEN_FRONTEND=$(abspath $(or $(QUEEN_FRONTEND),$(BUILD)/queen-frontend)) \
		QUEEN_LOAD=$(abspath $(BUILD)/queen-load) \
		prove -I $(PGXS_TEST)/perl -I regress/t $(PROVE_FLAGS) $(or $(PROVE_TESTS),$(sort $(wildcard regress/t/*.pl)))
installcheck:
	+@$(EXTENSION_MAKE) installcheck

# Static checks of our own code. cppcheck misreads list macros and conditions that imply each
# other; those checks are clang-tidy's. clang-tidy gets one file at a time: given more, it takes
# the va_list of one for that of another.
SOURCES = $(wildcard src/*/*.c)
lint:
	clang-format --dry-run -Werror $(wildcard src/*/*.[ch] regress/*/*.[ch] bench/*.[ch] bench/*/*.[ch])
	cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 -Isrc/common \
		$(addprefix --suppress=,varFuncNullUB uninitvar nullPointerRedundantCheck) $(SOURCES)
	printf '%s\n' $(SOURCES) | xargs -I FILE -P "$$(nproc)" clang-tidy --quiet --warnings-as-errors='*' \
		FILE -- $(C_CPPFLAGS) -I$(shell $(PG_CONFIG) --includedir-server) -std=c11

dist:
	git archive --prefix=queen-$(VERSION)/ -o queen-$(VERSION).tar.gz HEAD

.PHONY: all help extension frontend asan install uninstall clean deps up down env demo check check-tree \
	check-regress check-isolation check-tap check-ubsan suite-unit suite-regress suite-isolation suite-tap \
	installcheck lint dist

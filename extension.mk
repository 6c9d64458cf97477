# The extension, built by PGXS: queen.so and its script.
EXTENSION = queen
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" queen.control)

# The extension script is these files, in this order.
SQL_PARTS = schema codec stats due queue \
	push pop discovery ack lease dlq transaction \
	retention sidecar cleanup expiry \
	resources messages stat_views history maintain \
	timeline status analytics prometheus \
	seek groups traces \
	maintenance streams \
	api grants
SQL_FILES = $(SQL_PARTS:%=sql/%.sql)

MODULE_big = queen
OBJS = $(patsubst %.c,%.o,$(wildcard src/bgworker/*.c src/common/*.c))
DATA_built = queen--$(EXTVERSION).sql
EXTRA_CLEAN = $(OBJS:.o=.d)

WARNINGS = -Wall -Wextra -Wshadow -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror) \
	-Wno-unused-parameter -Wno-declaration-after-statement
PG_CPPFLAGS = -Isrc/common -D_GNU_SOURCE -DQUEEN_VERSION='"$(EXTVERSION)"' -MMD -MP
# PostgreSQL 15 leaves PGDLLEXPORT empty here; entry points must stay visible.
PG_CPPFLAGS += '-DPGDLLEXPORT=__attribute__((visibility("default")))'
PG_CFLAGS = -std=c11 $(WARNINGS) -fvisibility=hidden
SHLIB_LINK = -lzstd -lxxhash
override with_llvm = no

include regress/regress.mk
REGRESS_OPTS += --inputdir=regress
ISOLATION_OPTS += --inputdir=regress/isolation

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

queen--$(EXTVERSION).sql: $(SQL_FILES) queen.control extension.mk
	{ printf '%s\n' '\echo Use "CREATE EXTENSION queen" to load this file. \quit'; cat $(SQL_FILES); } > $@

-include $(OBJS:.o=.d)

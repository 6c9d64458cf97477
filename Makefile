EXTENSION = queen
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" queen.control)

# The extension script is these files, in this order.
SQL_PARTS = schema codec queue push pop ack lease dlq resources grants
SQL_FILES = $(SQL_PARTS:%=sql/%.sql)

MODULE_big = queen
COMMON_SOURCES = $(wildcard src/common/*.c)
BGWORKER_SOURCES = $(wildcard src/bgworker/*.c)
OBJS = $(BGWORKER_SOURCES:.c=.o) $(COMMON_SOURCES:.c=.o)
DATA_built = queen--$(EXTVERSION).sql
EXTRA_CLEAN = queen--$(EXTVERSION).sql

WARNINGS = -Wall -Wextra -Wshadow -Wmissing-prototypes -Wno-unused-parameter
PG_CPPFLAGS = -Isrc/common
PG_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -fvisibility=hidden
SHLIB_LINK = -lzstd -lxxhash
with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

queen--$(EXTVERSION).sql: $(SQL_FILES) queen.control
	{ echo '\echo Use "CREATE EXTENSION queen" to load this file. \quit'; cat $(SQL_FILES); } > $@

# Unit tests of what is pure C, and fuzzing.  Usable from the top Makefile and alone:
#
#   make -f regress/unit/unit.mk check-unit
#   make -f regress/unit/unit.mk fuzz-json fuzz-frame fuzz-jwt FUZZ_SECONDS=300

check-unit:

UNIT_BUILD = build/unit
UNIT_CPPFLAGS = -D_GNU_SOURCE -Isrc/common -Isrc/frontend -Iregress/unit
UNIT_CFLAGS = -std=c11 -g -O1 -Wall -Wextra -Wno-unused-parameter -Werror -fno-omit-frame-pointer \
	-fsanitize=address,undefined -fno-sanitize-recover=all -pthread
UNIT_LIBS = -lcmocka -l:libzstd.a -lxxhash -ljansson

UNIT_TESTS = $(patsubst regress/unit/%.c,$(UNIT_BUILD)/%,$(wildcard regress/unit/test_*.c))
UNIT_REPLAYS = $(patsubst %,$(UNIT_BUILD)/replay_%,json frame spoolfile jwt)
UNIT_COMMON = $(patsubst src/common/%.c,$(UNIT_BUILD)/%.o,$(wildcard src/common/*.c))

# libzstd is linked statically, so that its allocations can be made to fail, too.
UNIT_FAIL_ALLOC = $(UNIT_BUILD)/test_buf $(UNIT_BUILD)/test_segment
$(UNIT_FAIL_ALLOC): $(UNIT_BUILD)/fail_alloc.o
$(UNIT_FAIL_ALLOC): UNIT_WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
$(UNIT_BUILD)/test_jwt: UNIT_WRAP = -Wl,--wrap=strdup
$(UNIT_BUILD)/test_uuid: UNIT_WRAP = -Wl,--wrap=clock_gettime

# Of the front end, what needs nothing of it.
$(UNIT_BUILD)/test_crypt: $(UNIT_BUILD)/crypt.o
$(UNIT_BUILD)/test_crypt: UNIT_LIBS += -lgnutls
$(UNIT_BUILD)/test_jwt $(UNIT_BUILD)/replay_jwt: $(UNIT_BUILD)/jwt.o
$(UNIT_BUILD)/test_hosts: $(UNIT_BUILD)/hosts.o
$(UNIT_BUILD)/test_hosts: UNIT_LIBS += -lpq
$(UNIT_BUILD)/hosts.o: UNIT_CPPFLAGS += -I$(shell pg_config --includedir)

# And of the benchmarks.
$(UNIT_BUILD)/test_histogram: $(UNIT_BUILD)/histogram.o

$(UNIT_TESTS): $(UNIT_BUILD)/%: $(UNIT_BUILD)/%.o $(UNIT_COMMON)
	$(CC) $(UNIT_CFLAGS) $^ $(UNIT_WRAP) $(UNIT_LIBS) -o $@
$(UNIT_REPLAYS): $(UNIT_BUILD)/replay_%: $(UNIT_BUILD)/replay_%.o $(UNIT_BUILD)/fuzz_%.o \
		$(UNIT_BUILD)/jansson_verdict.o $(UNIT_COMMON)
	$(CC) $(UNIT_CFLAGS) $^ $(UNIT_LIBS) -o $@
$(UNIT_REPLAYS:%=%.o): $(UNIT_BUILD)/replay_%.o: regress/fuzz/replay.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -DCORPUS='"regress/fuzz/corpus/$*"' -MMD -MP -c $< -o $@
$(UNIT_BUILD)/%.o: regress/unit/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -MMD -MP -c $< -o $@
$(UNIT_BUILD)/%.o: regress/fuzz/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -MMD -MP -c $< -o $@
$(UNIT_BUILD)/%.o: src/common/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -MMD -MP -c $< -o $@
$(UNIT_BUILD)/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -MMD -MP -c $< -o $@
$(UNIT_BUILD)/%.o: src/frontend/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CPPFLAGS) $(UNIT_CFLAGS) -MMD -MP -c $< -o $@
.SECONDARY: $(UNIT_TESTS:%=%.o) $(UNIT_REPLAYS:%=%.o)
-include $(wildcard $(UNIT_BUILD)/*.d)

# Every test speaks TAP; the last lines are the totals.
check-unit: $(UNIT_TESTS) $(UNIT_REPLAYS)
	CMOCKA_MESSAGE_OUTPUT=TAP prove -v --exec '' $(PROVE_FLAGS) $^

# Fuzzing: new inputs gather in build/fuzz, beside the checked-in seeds.
FUZZ_CC ?= clang-14
FUZZ_SECONDS ?= 60
FUZZ_BUILD = build/fuzz
FUZZ_CFLAGS = -std=c11 -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=all -pthread

fuzz-json fuzz-frame fuzz-spoolfile fuzz-jwt: fuzz-%: $(FUZZ_BUILD)/fuzz_%
	@mkdir -p $(FUZZ_BUILD)/corpus/$*
	$< -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
		-artifact_prefix=$(FUZZ_BUILD)/ $(FUZZ_BUILD)/corpus/$* regress/fuzz/corpus/$*
$(FUZZ_BUILD)/fuzz_jwt: src/frontend/jwt.c
$(FUZZ_BUILD)/fuzz_%: regress/fuzz/fuzz_%.c regress/fuzz/jansson_verdict.c $(wildcard src/common/*.[ch] regress/fuzz/*.h)
	@mkdir -p $(@D)
	$(FUZZ_CC) $(UNIT_CPPFLAGS) $(FUZZ_CFLAGS) $(filter %.c,$^) -lzstd -lxxhash -ljansson -o $@

.PHONY: check-unit fuzz-json fuzz-frame fuzz-spoolfile fuzz-jwt

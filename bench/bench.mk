# The programs of the benchmarks; see bench/README.md.

BENCH_PROGRAMS = $(addprefix $(BUILD)/,queen-bench http-floor db-floor commit-time)
bench-programs: $(BENCH_PROGRAMS)

BENCH_LINK = $(CC) $(C_CFLAGS) $(RELEASE_FLAGS) $^ -pie $(LDFLAGS)
QUEEN_BENCH_SOURCES = $(addprefix bench/,queen-bench.c histogram.c payload.c push.c pop.c park.c)

$(BUILD)/queen-bench: $(QUEEN_BENCH_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/regress/load/exchange.o \
		$(BUILD)/frontend/common/buf.o
	$(BENCH_LINK) -o $@
$(BUILD)/http-floor: $(BUILD)/bench/http-floor.o
	$(BENCH_LINK) -lmicrohttpd -levent_core -o $@
$(BUILD)/db-floor: $(BUILD)/bench/db-floor.o
	$(BENCH_LINK) -L$(shell $(PG_CONFIG) --libdir) -lpq -o $@
$(BUILD)/commit-time: $(BUILD)/bench/commit-time.o $(BUILD)/bench/histogram.o
	$(BENCH_LINK) -o $@
$(BUILD)/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(RELEASE_FLAGS) -MMD -MP -c $< -o $@
-include $(wildcard $(BUILD)/bench/*.d)

# A short form of every comparison, a few minutes.
bench: all bench-programs
	@bench/run short

.PHONY: bench bench-programs

# The programs of the benchmarks; see bench/README.md.

BENCH_PROGRAMS = $(BUILD)/queen-bench
bench-programs: $(BENCH_PROGRAMS)

BENCH_SHARED = $(BUILD)/regress/load/exchange.o $(BUILD)/frontend/common/buf.o
QUEEN_BENCH_SOURCES = $(addprefix bench/,queen-bench.c histogram.c payload.c push.c pop.c park.c)

$(BUILD)/queen-bench: $(QUEEN_BENCH_SOURCES:%.c=$(BUILD)/%.o) $(BENCH_SHARED)
	$(CC) $(C_CFLAGS) $(RELEASE_FLAGS) $^ -pie $(LDFLAGS) -o $@
$(BUILD)/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(RELEASE_FLAGS) -MMD -MP -c $< -o $@
-include $(wildcard $(BUILD)/bench/*.d)

.PHONY: bench-programs

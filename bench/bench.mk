# The programs of the benchmarks; see bench/README.md.

BENCH_PROGRAMS = $(addprefix $(BUILD)/,queen-bench http-floor db-floor commit-time)
bench-programs: $(BENCH_PROGRAMS)

# Drivers of other queues, those whose libraries are there.
PEER_LIBRARIES = $(if $(wildcard /usr/include/amqp.h),rabbitmq) $(if $(wildcard /usr/include/nats/nats.h),nats)
bench-peers: $(addprefix $(BUILD)/peer-,pgq $(PEER_LIBRARIES))

BENCH_LINK = $(CC) $(C_CFLAGS) $(RELEASE_FLAGS) $^ -pie $(LDFLAGS)
BENCH_SHARED = $(BUILD)/regress/load/exchange.o $(BUILD)/frontend/common/buf.o
QUEEN_BENCH_SOURCES = $(addprefix bench/,queen-bench.c histogram.c payload.c push.c pop.c park.c)

$(BUILD)/queen-bench: $(QUEEN_BENCH_SOURCES:%.c=$(BUILD)/%.o) $(BENCH_SHARED)
	$(BENCH_LINK) -o $@
$(BUILD)/http-floor: $(BUILD)/bench/http-floor.o
	$(BENCH_LINK) -lmicrohttpd -levent_core -o $@
$(BUILD)/db-floor: $(BUILD)/bench/db-floor.o
	$(BENCH_LINK) -L$(shell $(PG_CONFIG) --libdir) -lpq -o $@
$(BUILD)/commit-time: $(BUILD)/bench/commit-time.o $(BUILD)/bench/histogram.o
	$(BENCH_LINK) -o $@
$(BUILD)/peer-pgq: PEER_LIBS = -L$(shell $(PG_CONFIG) --libdir) -lpq
$(BUILD)/peer-rabbitmq: PEER_LIBS = -lrabbitmq
$(BUILD)/peer-nats: PEER_LIBS = -lnats
$(BUILD)/peer-%: $(BUILD)/bench/peers/%.o $(BUILD)/bench/peers/peer.o $(BUILD)/bench/payload.o $(BENCH_SHARED)
	$(BENCH_LINK) $(PEER_LIBS) -o $@
$(BUILD)/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(RELEASE_FLAGS) -MMD -MP -c $< -o $@
-include $(wildcard $(BUILD)/bench/*.d $(BUILD)/bench/peers/*.d)

bench:
	@bench/run short

.PHONY: bench bench-programs bench-peers
.SECONDARY: $(addprefix $(BUILD)/bench/peers/,pgq.o rabbitmq.o nats.o peer.o)

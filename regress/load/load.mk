# The load generator of the TAP tests.

LOAD_OBJECTS = $(patsubst %.c,$(BUILD)/%.o,$(wildcard regress/load/*.c)) $(BUILD)/frontend/common/buf.o

load: $(BUILD)/queen-load
$(BUILD)/queen-load: $(LOAD_OBJECTS)
	$(CC) $(C_CFLAGS) $(RELEASE_FLAGS) $^ -pie $(LDFLAGS) -ljansson -o $@
$(BUILD)/regress/load/%.o: regress/load/%.c
	@mkdir -p $(@D)
	$(CC) $(C_CPPFLAGS) $(C_CFLAGS) $(RELEASE_FLAGS) -MMD -MP -c $< -o $@
-include $(wildcard $(BUILD)/regress/load/*.d)

.PHONY: load

/* Memory of the slots of a channel's pool. */
#include <stdint.h>

#include "base/populate.h"

static uint64_t free_memory_bytes; /* what mq_populate can allocate at once */
#define mq_populate(start, bytes, spare) ((void)(start), (void)(spare), (bytes) <= free_memory_bytes)

#include "channel_fixture.h"

TEST(slot_gets_memory_with_further_slots_if_memory_is_left) {
    begin(4, 4);
    a.populated_slots = 0;
    free_memory_bytes = UINT64_MAX;
    CHECK(mq_channel_take_free_slot(&a) == 0 && a.populated_slots == 4 && !a.lacks_memory);
}

TEST(slot_gets_memory_alone_if_further_slots_get_none) {
    begin(4, 4);
    a.populated_slots = 0;
    free_memory_bytes = a.slots.stride;
    for (int slot = 0; slot < 4; slot++)
        CHECK(mq_channel_take_free_slot(&a) == slot && a.populated_slots == (uint32_t)slot + 1 && !a.lacks_memory);
}

TEST(slot_without_memory_stays_free) {
    begin(4, 4);
    a.populated_slots = 0;
    free_memory_bytes = a.slots.stride - 1;
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT && a.lacks_memory);
    CHECK(a.free_count == 4 && a.populated_slots == 0);
    free_memory_bytes = UINT64_MAX;
    CHECK(mq_channel_take_free_slot(&a) == 0 && !a.lacks_memory);
}

TEST(slot_beyond_the_further_slots_gets_memory) {
    begin(1000, 4);
    a.populated_slots = 0;
    free_memory_bytes = UINT64_MAX;
    CHECK(mq_channel_populate_slot(&a, 999) && a.populated_slots == 1000);
}

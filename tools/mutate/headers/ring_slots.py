"""Mutants of the ring's reader slots, and of the subscribers that claim them."""

from tools.mutate.headers.mutant import mutants_of

subscriber = mutants_of("msgq/impl/ring/subscriber.h", "ring_slots")
slots = mutants_of("msgq/impl/ring/reader_slots.h", "ring_slots")

MUTANTS = [
    slots(
        "a slot of a living owner is taken",
        "if (mq_reader_slot_liveness(&probe, side, owner) == MQ_DEAD)",
        "if (mq_reader_slot_liveness(&probe, side, owner) != MQ_UNKNOWN)",
        "slot_of_a_living_owner_is_never_taken",
    ),
    slots(
        "a slot of another owner is left",
        "if (slot < 0 || !mq_compare_exchange_u64(&ring->read_uids[slot], uid, 0)) return;",
        "if (slot < 0 || !uid) return; mq_store_release_u64(&ring->read_uids[slot], 0);",
        "leave_of_the_last_slot_lowers_the_count_of_slots",
    ),
    slots(
        "the publisher does not see that a slot was left",
        "mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot, (uint64_t)slot + 1); "
        "mq_reader_slots_announce_change(side);",
        "mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot, (uint64_t)slot + 1); (void)side;",
        "leave_of_the_last_slot_lowers_the_count_of_slots",
    ),
    slots(
        "a slot that was taken is not valid",
        "mq_store_release_u64(&ring->read_valids[slot], 1);",
        "",
        "slot_of_a_living_owner_is_never_taken",
    ),
    subscriber(
        "an evicted subscriber claims a slot again",
        "s->avoids_slots = same_publisher && (s->avoids_slots || evicted);",
        "s->avoids_slots = false && (same_publisher || evicted);",
        "evicted_subscriber_claims_no_slot_until_the_publisher_changes",
    ),
    subscriber(
        "an evicted subscriber claims a slot at the second attempt",
        "s->avoids_slots = same_publisher && (s->avoids_slots || evicted);",
        "s->avoids_slots = same_publisher && evicted;",
        "evicted_subscriber_claims_no_slot_until_the_publisher_changes",
    ),
    subscriber(
        "an evicted subscriber never claims a slot again",
        "s->avoids_slots = same_publisher && (s->avoids_slots || evicted);",
        "s->avoids_slots |= same_publisher && evicted;",
        "evicted_subscriber_claims_no_slot_until_the_publisher_changes",
    ),
    subscriber(
        "a slot is claimed twice at most",
        "!s->avoids_slots && tries < 3 &&",
        "!s->avoids_slots && tries < 2 &&",
        "slot_that_a_stock_publisher_clears_is_claimed_three_times",
    ),
    subscriber(
        "a slot is claimed four times",
        "!s->avoids_slots && tries < 3 &&",
        "!s->avoids_slots && tries < 4 &&",
        "slot_that_a_stock_publisher_clears_is_claimed_three_times",
    ),
    # Equivalent: a claim without the load of the free slot's uid. Its exchange fails.
    slots(
        "a slot beyond the last one is claimed",
        "i < MQ_READER_SLOTS && i < (int)count;",
        "i < (int)count;",
        "slot_beyond_the_last_one_is_never_claimed",
    ),
    slots(
        "a slot whose owner has unknown liveness is claimed",
        "if (mq_reader_slot_liveness(&probe, side, owner) == MQ_DEAD)",
        "if (mq_reader_slot_liveness(&probe, side, owner) != MQ_ALIVE)",
        "slot_beyond_the_last_one_is_never_claimed",
    ),
    slots(
        "the last free slot is not found",
        "i < MQ_READER_SLOTS && i < (int)count;",
        "i < MQ_READER_SLOTS && i < (int)count - 1;",
        "each_free_new_or_dead_slot_is_claimed",
    ),
    slots(
        "the last slot of all is never new",
        "count < MQ_READER_SLOTS && tries",
        "count < MQ_READER_SLOTS - 1 && tries",
        "each_free_new_or_dead_slot_is_claimed",
    ),
    slots(
        "the dead owner of the last slot keeps it",
        "i < MQ_READER_SLOTS && slot < 0;",
        "i < MQ_READER_SLOTS - 1 && slot < 0;",
        "each_free_new_or_dead_slot_is_claimed",
    ),
    slots(
        "a new slot is claimed once",
        "tries < MQ_READER_SLOT_TRIES;",
        "tries < 1;",
        "new_slot_that_another_reader_takes_is_left_to_it",
    ),
    slots(
        "a released slot that was claimed again stays beyond the count",
        "&& mq_load_acquire_u64(&ring->read_uids[slot]) != 0)",
        "&& slot < 0)",
        "released_slot_that_another_reader_claims_stays_below_the_count",
    ),
    slots(
        "a slot beyond the count is held",
        "slot >= 0 && (uint64_t)slot < mq_load_acquire_u64(&ring->num_readers) &&",
        "slot >= 0 &&",
        "released_slot_that_another_reader_claims_stays_below_the_count",
    ),
]

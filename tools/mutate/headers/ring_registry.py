"""Mutants of topics: rows, and the start and end of a publisher."""

from tools.mutate.headers.mutant import mutants_of

registry = mutants_of("msgq/impl/ring/registry.h", "ring")

MUTANTS = [
    registry(
        "a newcomer asks without membarrier",
        "p->unordered = (p->after_stock || mq_ring_has_other_publishers(p)) && !mq_membarrier();",
        "p->unordered = true;",
        "claim_names_the_owner_before_the_others_are_ordered",
    ),
    registry(
        "a publisher after a closed one begins another count",
        "p->after_stock = former != 0 && !mq_ring_find_publisher(side, former);",
        "p->after_stock = !mq_ring_find_publisher(side, former);",
        "publisher_after_a_closed_one_continues_the_count_of_messages",
    ),
    registry(
        "a publisher after a stock one continues the count",
        "if (!p->after_stock && readable)",
        "if (readable)",
        "publisher_after_a_stock_one_begins_another_count",
    ),
    registry(
        "a publisher after a stock one never names its row",
        "mq_compare_exchange_u64(&p->ring->write_uid, claim, p->uid);",
        "(void)claim;",
        "publisher_after_a_stock_one_begins_another_count",
    ),
    registry(
        "a publisher that has started is still after a stock one",
        "p->after_stock = false;",
        "",
        "publisher_after_a_stock_one_begins_another_count",
    ),
    registry(
        "a publisher after a stock one names its row before its start",
        "return p->after_stock ? p->uid ^ 1ull << 63 : p->uid;",
        "return p->uid;",
        "claim_after_a_stock_publisher_names_no_row",
    ),
    registry(
        "a publisher after a stock one fills its row before its start",
        "if (!p->after_stock) mq_ring_publisher_write_identity(p, self);",
        "mq_ring_publisher_write_identity(p, self);",
        "claim_after_a_stock_publisher_names_no_row",
    ),
    registry(
        "a publisher after a stock one is not ordered",
        "p->unordered = (p->after_stock || mq_ring_has_other_publishers(p)) && !mq_membarrier();",
        "p->unordered = mq_ring_has_other_publishers(p) && !mq_membarrier();",
        "claim_after_a_stock_publisher_names_no_row",
    ),
    registry(
        "a newcomer waits for the dead",
        "if (life == MQ_ALIVE || (life == MQ_UNKNOWN && !known))",
        "if (life != MQ_UNKNOWN || !known)",
        "newcomer_waits_for_a_send_in_progress_unless_its_owner_is_dead",
    ),
    registry(
        "a newcomer waits for nobody",
        "!mq_load_acquire_u64(&other->participant.uid) || !mq_ring_publisher_is_sending(other))",
        "!mq_load_acquire_u64(&other->participant.uid) || mq_ring_publisher_is_sending(other))",
        "newcomer_waits_for_a_send_in_progress_unless_its_owner_is_dead",
    ),
    registry(
        "the count of messages is that of `sent`",
        "p->sequence = m.sequence + (uint64_t)walked; p->era = m.era;",
        "p->era = m.era;",
        "next_publisher_continues_the_count_of_messages",
    ),
    registry(
        "rows of dead publishers stay",
        "mq_ring_row_liveness(probe, p->side, row) == MQ_DEAD) mq_participant_clear(participant);",
        "mq_ring_row_liveness(probe, p->side, row) == MQ_DEAD) (void)who;",
        "next_publisher_continues_the_count_of_messages",
    ),
    registry(
        "a starting publisher wakes only sleepers with a flag",
        "mq_fetch_or_u32(&side->eventcount, MQ_EVENTCOUNT_WAITERS);",
        "",
        "start_wakes_all_sleepers",
    ),
    registry(
        "a publisher that closes clears the owner",
        "mq_compare_exchange_u64(&p->ring->write_uid, p->uid, 0);",
        "mq_store_release_u64(&p->ring->write_uid, 0);",
        "close_leaves_the_next_publisher",
    ),
    registry(
        "a publisher that closes wakes nobody",
        "mq_ring_publisher_notify_subscribers(p); mq_ring_publisher_forget_stock_readers(p);",
        "mq_ring_publisher_forget_stock_readers(p);",
        "close_clears_the_owner_and_wakes_sleepers",
    ),
    registry(
        "dead subscribers are counted",
        "if (mq_ring_row_liveness(&probe, p->side, MQ_RING_PUBLISHERS + i) == MQ_DEAD) continue;",
        "if (!mq_load_acquire_u64(&p->side->subscribers[i].participant.uid)) continue;",
        "ring_readers-readers_count_is_that_of_living_subscribers",
    ),
    registry(
        "the side of another ring is good",
        "same = mq_load_relaxed_u64(&side->ring_inode) == inode && mq_load_relaxed_u64(&side->ring_data_bytes) "
        "<= data_bytes;",
        "same = inode && mq_load_relaxed_u64(&side->ring_data_bytes) <= data_bytes;",
        "ring_readers-side_of_another_ring_is_stale",
    ),
    registry(
        "the side of a larger ring is good",
        " && mq_load_relaxed_u64(&side->ring_data_bytes) <= data_bytes; return same ?",
        " && data_bytes; return same ?",
        "ring_readers-side_of_another_ring_is_stale",
    ),
    registry(
        "flags stay when a ring was made smaller",
        "mq_compare_exchange_u64(&ring->write_pointer, now, mq_ring_next_lap(now)); for (int i = 0; i < "
        "MQ_READER_SLOTS; i++)",
        "mq_compare_exchange_u64(&ring->write_pointer, now, mq_ring_next_lap(now)); for (int i = 0; i < "
        "MQ_READER_SLOTS - 1; i++)",
        "ring_readers-truncated_ring_begins_the_next_lap",
    ),
    registry(
        "a leaving subscriber keeps its slot",
        "mq_reader_slot_release(s->ring, s->side, s->slot, s->slot_uid); s->slot = -1; mq_participant_leave",
        "s->slot = -1; mq_participant_leave",
        "ring_readers-leave_frees_row_and_slot",
    ),
]

"""Mutants of memory orders: an access of an edge is relaxed, or the fence beside it is missing."""

from tools.mutate.headers.mutant import Mutant, mutants_of

_TEST = "tests/meta/test_memory_order_edges.py::test_memory_accesses_have_orders_stated_in_their_comments"


def relaxed(path: str, edge: str, old: str, new: str) -> Mutant:
    """Return a mutant of one side of an edge."""
    return mutants_of(path, "")(f"EDGE {edge} is weaker", old, new, _TEST)


_QUEUE = "msgq/impl/workqueue"
_RING = "msgq/impl/ring"

MUTANTS = [
    relaxed(
        f"{_QUEUE}/sender.h",
        "message",
        "mq_store_release_u64(&h->parts.slot_states[slot], key); mq_fetch_add_u64(&h->parts.queue->ready_count, 1); if",
        "mq_store_relaxed_u64(&h->parts.slot_states[slot], key); mq_fetch_add_u64(&h->parts.queue->ready_count, 1); if",
    ),
    relaxed(
        f"{_QUEUE}/scan.h",
        "fill-count",
        "mq_load_acquire_u64(&h->parts.fill_counts[block]);",
        "mq_load_relaxed_u64(&h->parts.fill_counts[block]);",
    ),
    relaxed(
        f"{_QUEUE}/scan.h",
        "sleeper-bit",
        "mq_load_seq_cst_u64(&h->parts.queue->ready_count);",
        "mq_load_relaxed_u64(&h->parts.queue->ready_count);",
    ),
    relaxed(
        f"{_QUEUE}/receiver.h",
        "sent",
        "mq_load_acquire_u64(&h->parts.queue->ready_count);",
        "mq_load_relaxed_u64(&h->parts.queue->ready_count);",
    ),
    relaxed(
        f"{_QUEUE}/receiver.h",
        "lease-end",
        "mq_store_release_u64(&h->parts.slot_headers[delivery->slot].lease,",
        "mq_store_relaxed_u64(&h->parts.slot_headers[delivery->slot].lease,",
    ),
    relaxed(
        f"{_QUEUE}/recovery.h",
        "lease-end",
        "mq_load_acquire_u64(&h->parts.slot_headers[slot].lease);",
        "mq_load_relaxed_u64(&h->parts.slot_headers[slot].lease);",
    ),
    relaxed(
        f"{_QUEUE}/recovery.h",
        "word-owner",
        "mq_load_acquire_u64(&h->parts.slot_states[slot]); mq_slot_state state = mq_slot_state_decode(word); "
        "if (state != MQ_SLOT_FILLING && state != MQ_SLOT_TAKEN && state",
        "mq_load_relaxed_u64(&h->parts.slot_states[slot]); mq_slot_state state = mq_slot_state_decode(word); "
        "if (state != MQ_SLOT_FILLING && state != MQ_SLOT_TAKEN && state",
    ),
    relaxed(
        f"{_QUEUE}/events.h",
        "taken-time",
        "mq_store_release_u64(&header->taken_by, taken);",
        "mq_store_relaxed_u64(&header->taken_by, taken);",
    ),
    relaxed(
        "msgq/impl/channel/header.h",
        "pool",
        "mq_store_release_u64(&row->pool_uid, slots->uid);",
        "mq_store_relaxed_u64(&row->pool_uid, slots->uid);",
    ),
    relaxed(
        "msgq/impl/channel/index_ring.h",
        "order",
        "mq_load_acquire_u64(mq_index_ring_entry_at(order, cursor));",
        "mq_load_relaxed_u64(mq_index_ring_entry_at(order, cursor));",
    ),
    relaxed(
        "msgq/impl/channel/index_ring.h",
        "pin",
        "return mq_load_seq_cst_u64(mq_index_ring_entry_at(order, cursor)) == entry;",
        "return mq_load_acquire_u64(mq_index_ring_entry_at(order, cursor)) == entry;",
    ),
    relaxed(
        "msgq/impl/channel/index_ring.h",
        "begin",
        "mq_store_release_u64(order->tail, order->capacity);",
        "mq_store_relaxed_u64(order->tail, order->capacity);",
    ),
    relaxed(
        "msgq/impl/channel/pool.h",
        "unpin",
        "return mq_load_seq_cst_u64(&slots->pool_header->pins[slot].holders);",
        "return mq_load_relaxed_u64(&slots->pool_header->pins[slot].holders);",
    ),
    relaxed(
        "msgq/impl/records/cell.h",
        "value",
        "mq_store_release_u64(version, mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);",
        "mq_store_relaxed_u64(version, mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);",
    ),
    relaxed(
        "msgq/impl/records/board.h",
        "key",
        "mq_store_release_u64(&parts->key_table[i].named, 1);",
        "mq_store_relaxed_u64(&parts->key_table[i].named, 1);",
    ),
    relaxed(
        f"{_RING}/publisher.h",
        "commit",
        "mq_store_release_u64(&p->ring->write_pointer, head);",
        "mq_store_relaxed_u64(&p->ring->write_pointer, head);",
    ),
    relaxed(
        f"{_RING}/publisher.h",
        "send-done",
        "mq_store_release_u64(&row->sent, messages);",
        "mq_store_relaxed_u64(&row->sent, messages);",
    ),
    relaxed(
        f"{_RING}/publisher.h",
        "checkpoint",
        "mq_store_release_u64(&side->grant_seq, turn);",
        "mq_store_relaxed_u64(&side->grant_seq, turn);",
    ),
    relaxed(
        f"{_RING}/subscriber.h",
        "stats",
        "mq_store_release_u64(&s->row->cursor, s->cursor);",
        "mq_store_relaxed_u64(&s->row->cursor, s->cursor);",
    ),
    relaxed(f"{_RING}/walk.h", "grant", "mq_fence_acquire(); if", "if"),
    relaxed(
        "visionipc/impl/leases.h",
        "frame",
        "mq_load_acquire_u32(&table->generation[buffer]) == generation;",
        "mq_load_relaxed_u32(&table->generation[buffer]) == generation;",
    ),
    relaxed(
        "visionipc/impl/leases.h",
        "lease",
        "mq_store_release_u32(&table->rows[row].lease[buffer], 0); } static inline void mq_frame_row_set_locked",
        "mq_store_relaxed_u32(&table->rows[row].lease[buffer], 0);\n}\nstatic inline void mq_frame_row_set_locked",
    ),
]

"""Statistics of a vector or board on the fake backend; see `msgq.stats`.

Files do not exist, and processes do not die.
"""

from __future__ import annotations

import os
import threading

from msgq.common.stats import Participant
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.impl.base.process import process_name
from msgq.impl.fake.records_store import BoardStore, KeySlot, RecordHandleRow, RecordStore, VectorStore
from msgq.impl.records import options


def read_record_stats(store: RecordStore, prefix: str) -> RecordStats:
    """Return the writers and the counters."""
    length, item_bytes, copies = 0, 0, options.DEFAULT_COPIES
    counts, times = [0], [0]
    keys: tuple[RecordKeyInfo, ...] = ()
    exclusive = False
    if isinstance(store, BoardStore):
        slots = list(store.slots.values())
        length, item_bytes = store.capacity, store.value_bytes
        counts, times = [slot.write_count for slot in slots], [slot.write_time for slot in slots]
        keys = tuple(_make_key_info(store, key, slot) for key, slot in store.slots.items())
    elif isinstance(store, VectorStore):
        length, item_bytes, copies = len(store.elements), store.dtype.itemsize, store.copies
        counts, times, exclusive = store.write_counts.tolist(), store.write_times.tolist(), store.exclusive
    last_ns = max(times, default=0)
    return RecordStats(
        store.name,
        prefix,
        "",
        0,
        store.mode,
        "board" if isinstance(store, BoardStore) else "vector",
        store.creator,
        store.created_ns,
        length,
        item_bytes,
        copies,
        exclusive,
        store.schema,
        written=sum(counts),
        elements_written=sum(count > 0 for count in counts),
        last_ns=last_ns or None,
        last_age_ns=store.bus.clock.now_ns - last_ns if last_ns else None,
        last_index=max(range(len(times)), key=lambda i: (times[i], i)) if last_ns else None,
        key_count=len(keys),
        keys=keys[: options.DEFAULT_KEYS],
        writers=tuple(_make_writer_info(store, i, row) for i, row in enumerate(store.handle_rows) if row.may_write),
    )


def _make_own_participant() -> Participant:
    return Participant(os.getpid(), threading.get_native_id(), 0, process_name(), True)


def _make_key_info(store: BoardStore, key: str, slot: KeySlot) -> RecordKeyInfo:
    owner = None if slot.owner_row is None else _make_own_participant()
    if not slot.write_count:
        return RecordKeyInfo(key, owner)
    return RecordKeyInfo(
        key, owner, slot.write_count, len(slot.value), slot.write_time, store.bus.clock.now_ns - slot.write_time
    )


def _make_writer_info(store: RecordStore, index: int, row: RecordHandleRow) -> RecordWriterInfo:
    owned = sum(slot.owner_row is row for slot in store.slots.values()) if isinstance(store, BoardStore) else 0
    return RecordWriterInfo(_make_own_participant(), index, row.written_count, keys=owned)

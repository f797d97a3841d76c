"""What a vector or board of the fake backend shows of itself; see `msgq.stats`. No files, and no process dies."""

from __future__ import annotations

import os
import threading

from msgq.common.stats import Participant
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.impl.base.process import process_name
from msgq.impl.fake.records_store import BoardStore, Row, Slot, Store, VectorStore
from msgq.impl.records import options


def record_stats(store: Store, prefix: str) -> RecordStats:
    """Return who writes, and what was written."""
    length, item_bytes, copies = 0, 0, options.DEFAULT_COPIES
    counts, times = [0], [0]
    keys: tuple[RecordKeyInfo, ...] = ()
    exclusive = False
    if isinstance(store, BoardStore):
        slots = list(store.slots.values())
        length, item_bytes = store.capacity, store.value_bytes
        counts, times = [slot.count for slot in slots], [slot.time for slot in slots]
        keys = tuple(_key(store, key, slot) for key, slot in store.slots.items())
    elif isinstance(store, VectorStore):
        length, item_bytes, copies = len(store.items), store.dtype.itemsize, store.copies
        counts, times, exclusive = store.counts.tolist(), store.times.tolist(), store.exclusive
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
        writers=tuple(_writer(store, i, row) for i, row in enumerate(store.rows) if row.writes),
    )


def _this_process() -> Participant:
    return Participant(os.getpid(), threading.get_native_id(), 0, process_name(), True)


def _key(store: BoardStore, key: str, slot: Slot) -> RecordKeyInfo:
    owner = None if slot.owner is None else _this_process()
    if not slot.count:
        return RecordKeyInfo(key, owner)
    return RecordKeyInfo(key, owner, slot.count, len(slot.data), slot.time, store.bus.clock.now_ns - slot.time)


def _writer(store: Store, index: int, row: Row) -> RecordWriterInfo:
    owned = sum(slot.owner is row for slot in store.slots.values()) if isinstance(store, BoardStore) else 0
    return RecordWriterInfo(_this_process(), index, row.written, keys=owned)

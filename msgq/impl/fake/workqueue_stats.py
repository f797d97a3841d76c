"""Statistics of a work queue on the fake backend; see `msgq.stats`. A file does not exist, and handles do not die."""

from __future__ import annotations

import os
import threading
from collections import Counter

from msgq.common.queue_events import Event
from msgq.common.stats import Participant
from msgq.common.stats.workqueue import QueueHandleInfo, QueueStats
from msgq.impl.fake.workqueue_store import QueueHandleRow, QueueState

_EVENTS_CHOICES = (None, "heads", "payload")
_PRIORITIES_MAX = 8


def read_queue_stats(queue: QueueState, prefix: str) -> QueueStats:
    """Return the statistics of a queue."""
    pending = [item for *_, item in queue.ready_heap]
    claims = [claim for row in queue.handle_rows for claim in row.open_claims]
    delayed = list(queue.waiting_items.values())
    items = pending + delayed + [claim.item for claim in claims]
    oldest = min((item.sent_time for item in pending), default=None)
    priorities = sorted(Counter(item.priority for item in pending).items(), reverse=True)
    return QueueStats(
        queue.name,
        prefix,
        "",
        0,
        queue.mode,
        queue.creator,
        queue.created_ns,
        queue.max_messages,
        queue.max_message_size,
        queue.schema,
        depth=len(pending),
        in_flight=queue.in_flight,
        delayed=len(delayed),
        free_slots=queue.count_free_slots(),
        oldest_ns=oldest,
        oldest_age_ns=None if oldest is None else queue.bus.clock.now_ns - oldest,
        priorities=tuple(priorities[:_PRIORITIES_MAX]),
        redelivered=sum(item.deliveries > 0 for item in pending + delayed)
        + sum(claim.item.deliveries > 1 for claim in claims),
        most_deliveries=max((item.deliveries for item in items), default=0),
        leases=sum(claim in queue.bus.clock.alarms for claim in claims),
        handles=tuple(map(_make_handle_info, queue.handle_rows)),
        events=_EVENTS_CHOICES[queue.events_choice],
        **_count_by_event(queue.event_counts),
    )


def _count_by_event(events: Counter[Event]) -> dict[str, int]:
    return {
        "sent": events[Event.SENT],
        "received": events[Event.TAKEN] + events[Event.RECEIVED],
        "acknowledged": events[Event.ACKNOWLEDGED] + events[Event.RECEIVED],
        "returned": events[Event.RETURNED],
        "refused": events[Event.REFUSED],
    }


def _make_handle_info(row: QueueHandleRow) -> QueueHandleInfo:
    waits = (
        *(("receiving",) if row.waiting_receives else ()),
        *(("notified",) if row.notify_callback is not None else ()),
    )
    participant = Participant(os.getpid(), threading.get_native_id(), 0, row.queue.creator[0], True)
    return QueueHandleInfo(
        participant, row.handle_number, taken=len(row.open_claims), waits=waits, **_count_by_event(row.event_counts)
    )

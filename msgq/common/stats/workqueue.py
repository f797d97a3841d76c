"""Statistics of work queues, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class QueueHandleInfo:
    """An open handle of a work queue, as observers see it, or the leftover row of a dead handle.

    Attributes:
        participant: process of the handle.
        row: number of the row in the queue, 0 to 127.
        sent: messages sent by this handle, as in `QueueStats`.
        received: messages received by this handle, as in `QueueStats`.
        acknowledged: messages acknowledged by this handle, as in `QueueStats`.
        returned: messages returned by this handle, as in `QueueStats`, including those that it returned for other
            handles.
        refused: messages of this handle that found no free slot, as in `QueueStats`.
        pending_slots: number of slots that the handle is filling now.
        taken: number of messages that the handle has taken, and neither acknowledged nor returned.
        waits: reasons for sleeping: "receiving", "watching" (a descriptor, a `Poller` or asyncio), "sending" (waiting
            for a free slot), "notified" (a notification).
    """

    participant: Participant
    row: int
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    refused: int = 0
    pending_slots: int = 0
    taken: int = 0
    waits: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles by past and present calls: "sender" and "receiver", or "handle" for neither."""
        sends = self.sent or "sending" in self.waits
        receives = self.received or not {"receiving", "watching"}.isdisjoint(self.waits)
        return (*(("sender",) if sends else ()), *(("receiver",) if receives else ())) or ("handle",)

    @property
    def leaves(self) -> bool:
        """True if the handle is dead, and its slots or its waiting bits remain."""
        return self.participant.alive is False and bool(self.pending_slots or self.taken or self.waits)


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A waiting message of a work queue, as observers see it.

    Attributes:
        priority: 0 to 32767. Larger priorities are received first.
        number: number of the message in the queue, as in events. The number stays until the message leaves the queue.
            Later messages have larger numbers, with gaps.
        deliveries: number of times that a consumer took the message, and the message returned.
        sent_time: sending time, in nanoseconds of the host's clock; 0: none.
        origin_time: origin given by the sender, in nanoseconds of the host's clock; 0: none.
        data: copy of the payload.
    """

    priority: int
    number: int
    deliveries: int
    sent_time: int
    origin_time: int
    data: bytes


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A work queue at one moment. Each number is read separately.

    Attributes:
        name: name of the queue.
        prefix: prefix of the queue.
        path: path of the queue's file.
        bytes: size of the file.
        mode: permissions of the file.
        creator: name and pid of the process that created the queue.
        created_ns: creation time, in nanoseconds of the host's clock.
        max_messages: as in `MessageQueue`.
        max_message_size: as in `MessageQueue`.
        schema: description of the messages; None: not set.
        depth: number of waiting messages.
        in_flight: number of taken messages.
        delayed: number of messages that wait for their due time.
        pending_slots: number of slots that senders are filling now.
        free_slots: number of free slots.
        corrupt_slots: number of slots with invalid data of another program. No process uses these slots.
        lost_slots: number of slots held by closed or dead handles whose row has a new owner. The next recovery frees
            them.
        oldest_ns: sending time of the oldest waiting message, in nanoseconds of the host's clock; None: no message
            waits.
        oldest_age_ns: nanoseconds that the oldest message has waited.
        priorities: pairs of priority and number of messages, for the 8 highest waiting priorities.
        redelivered: number of present messages that a consumer had before.
        most_deliveries: largest number of deliveries of a present message.
        leases: number of messages taken with a lease.
        expired_leases: number of messages with an expired lease. The queue soon returns these messages.
        sent: number of sent messages since creation.
        received: number of taken messages since creation.
        acknowledged: number of acknowledged messages since creation, including messages of `receive`.
        returned: number of messages that came back to the queue since creation.
        refused: number of messages that found no free slot since creation.
        handles: open handles, and leftover rows of dead ones; see `QueueHandleInfo`.
        events: published events of messages (docs/guides/queues.md): None, "heads", or "payload" for events with
            payloads.
        events_lost: number of events that could not be published. A killed process may omit further events. The
            counters above include them.
    """

    name: str
    prefix: str
    path: str
    bytes: int
    mode: int
    creator: tuple[str, int]
    created_ns: int
    max_messages: int
    max_message_size: int
    schema: Schema | None = None
    depth: int = 0
    in_flight: int = 0
    delayed: int = 0
    pending_slots: int = 0
    free_slots: int = 0
    corrupt_slots: int = 0
    lost_slots: int = 0
    oldest_ns: int | None = None
    oldest_age_ns: int | None = None
    priorities: tuple[tuple[int, int], ...] = ()
    redelivered: int = 0
    most_deliveries: int = 0
    leases: int = 0
    expired_leases: int = 0
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    refused: int = 0
    handles: tuple[QueueHandleInfo, ...] = ()
    events: str | None = None
    events_lost: int = 0

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Handles and leftover rows, once for each role."""
        return tuple((role, row.participant) for row in self.handles for role in row.roles)

"""What is measured of work queues, as values. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class QueueHandleInfo:
    """An open handle of a work queue as others see it, or a row in which a dead one left something.

    Attributes
    ----------
    participant : the process.
    row : its number in the queue, of 128.
    sent, received, acknowledged, returned, refused : its own counts, as those of `QueueStats`. What it brought back for
        others is among the returned.
    pending_slots : places that it fills with messages just now.
    taken : messages that it has taken, and neither acknowledged nor given back.
    waits : what it sleeps for or wants to know: "receiving", "watching" (by a descriptor, a `Poller` or asyncio),
        "sending" (for room), "notified".
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
        """What it did or waits for, "sender" and "receiver"; "handle" when it is neither."""
        sends = self.sent or "sending" in self.waits
        receives = self.received or not {"receiving", "watching"}.isdisjoint(self.waits)
        return (*(("sender",) if sends else ()), *(("receiver",) if receives else ())) or ("handle",)

    @property
    def leaves(self) -> bool:
        """Whether it is dead, and places or wishes of it are still there."""
        return self.participant.alive is False and bool(self.pending_slots or self.taken or self.waits)


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A message that waits in a work queue, as others see it who do not take it.

    Attributes
    ----------
    priority : from 0 to 32767; larger ones are received first.
    number : number of the message in the queue, as events say it (`msgq.common.queue_events`): the same until it is
        gone. Later messages have larger numbers, with gaps.
    deliveries : how often it was taken so far, and came back.
    sent_time, origin_time : when it was sent, and what its sender gave with it, nanoseconds of the host's clock; 0:
        nothing.
    data : a copy.
    """

    priority: int
    number: int
    deliveries: int
    sent_time: int
    origin_time: int
    data: bytes


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A work queue, at one moment; each figure is read on its own.

    Attributes
    ----------
    name, prefix, path : of the queue, and of its file.
    bytes, mode : of the file.
    creator, created_ns : name and pid of who made it; when, by the host's clock.
    max_messages, max_message_size : as `MessageQueue` has them.
    depth : messages that wait.
    in_flight : messages that somebody has taken.
    pending_slots : places that senders fill just now.
    free_slots : places for more messages.
    corrupt_slots : places in which another program wrote what means nothing; nobody uses them.
    lost_slots : places held or taken by handles that are gone and whose row somebody else has; they come back soon.
    oldest_ns : when the message was sent that waits longest, by the host's clock; None: none waits.
    oldest_age_ns : for how long it has waited.
    priorities : the highest that wait, 8 at most, each with how many messages have it.
    redelivered : messages that are there, and that somebody had before.
    most_deliveries : how often the one of them was taken that was taken most often.
    leases, expired_leases : messages taken for a time; those of them whose time is over, that come back soon.
    sent, received, acknowledged, returned, refused : messages so far; received are those that were taken, acknowledged
        also those of `receive`, returned those that came back, refused those for which there was no room.
    handles : who has it open, and what the dead left, see `QueueHandleInfo`.
    events : what the queue publishes of its messages (queues.md): None, "heads", or "payload", which has the payload of
        what is sent besides.
    events_lost : events that could not be published. A process that is killed leaves out others, which only the counts
        above show.
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
        """Who has it open or left something, once for each of its `roles`."""
        return tuple((role, row.participant) for row in self.handles for role in row.roles)

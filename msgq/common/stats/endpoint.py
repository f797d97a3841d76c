"""Statistics of endpoints of every kind, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelStats
from msgq.common.stats.records import RecordStats
from msgq.common.stats.topic import TopicStats
from msgq.common.stats.workqueue import QueueStats


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """An endpoint of any kind, at one moment.

    Attributes:
        kind: "topic", "frames" (a topic that announces frames), "channel", "records" or "queue".
        endpoint: name with the prefix of its kind, for example `channel/NAME`.
        path: path of the file. For a topic, the ring; for a channel, the channel file.
        bytes: bytes of memory. For a topic, the data area of the ring; otherwise all files, including the pools of a
            channel.
        participants: registered processes with their roles: "publisher", "subscriber", "viewer" (a channel's subscriber
            with views), "writer" (of records), "sender", "receiver", or "handle" (a queue's handle that neither sent
            nor received). A process with two roles appears twice. Passive subscribers and readers of records leave no
            trace.
        messages: number of published or sent messages, or of written elements. None: not counted (stock publishers
            only).
        lost: number of messages that the subscribers have lost, as a sum. Queues lose no message. None: unknown; always
            None for records, whose values are replaced by design.
        schema: description of the messages.
        created_ns: creation time in nanoseconds of the host's clock; None: unknown.
        stats: statistics of the kind: `TopicStats`, `ChannelStats`, `RecordStats` or `QueueStats`.
    """

    kind: str
    endpoint: str
    path: str
    bytes: int
    participants: tuple[tuple[str, Participant], ...]
    messages: int | None
    lost: int | None
    schema: Schema | None
    created_ns: int | None
    stats: TopicStats | ChannelStats | RecordStats | QueueStats


@dataclass(frozen=True, slots=True)
class EndpointCounts:
    """Counters of a channel, queue, vector or board at one moment. Topics have `TopicCounts`.

    Attributes:
        messages: number of messages, as in `EndpointStats`.
        bytes: bytes of payload; for a channel, of the publishers that are present. None for queues and boards, which do
            not count bytes.
        lost: number of lost messages, as in `EndpointStats`.
        received: number of messages of a queue that were received or taken.
    """

    messages: int
    bytes: int | None
    lost: int | None
    received: int | None = None

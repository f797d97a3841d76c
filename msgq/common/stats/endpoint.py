"""What is measured of endpoints of every kind, as values. Public names are in `msgq.stats`."""

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

    Attributes
    ----------
    kind : "topic", "frames" (a topic that announces frames), "channel", "records" or "queue".
    endpoint : its name with its mark, as `channel/NAME`.
    path : of its file: of a topic the ring, the channel file of a channel.
    bytes : of memory: of a topic the ring's data area, else of its files; of a channel its pools among them.
    participants : who is entered in it, each with a role: "publisher", "subscriber", "viewer" (of a channel, who takes
        views), "writer" (of records), "sender", "receiver", or "handle" (of a queue, who did neither so far). Somebody
        with two roles is there twice. Who looks on passively, or reads records, leaves no trace.
    messages : published, sent, or elements written so far; None when nobody counts them (stock publishers alone).
    lost : messages that its subscribers have lost by now, all together; None when unknown, and of records, whose
        values are replaced by design. A queue loses none.
    schema : of its messages.
    created_ns : by the host's clock (docs/internals/clock.md); None when it is not known.
    stats : what is known of it as its kind, see there.
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
    """What moves in a channel, a queue, a vector or a board, at one moment; of topics it is `TopicCounts`.

    Attributes
    ----------
    messages : as in `EndpointStats`.
    bytes : of their payload; of a channel those of publishers that are there. None when nobody counts them: of queues
        and boards.
    lost : as in `EndpointStats`.
    received : messages of a queue that were received or taken.
    """

    messages: int
    bytes: int | None
    lost: int | None
    received: int | None = None

"""What the verbs show of an endpoint, of each kind: who takes part, and what moved between two looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgq.cli.common.render import in_units, publisher
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordStats
from msgq.common.stats.topic import TopicCounts
from msgq.kinds import CHANNEL, QUEUE, RECORDS, TOPIC, Kind, kind_name
from msgq.stats import ChannelStats, Participant, QueueStats, TopicStats


class AnyStats(Protocol):
    """What is known of an endpoint of any kind."""

    @property
    def path(self) -> str:
        """Of its file."""

    @property
    def created_ns(self) -> int | None:
        """When it was made, by the host's clock."""

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Who is entered, each with its role."""


_Stats = TypeVar("_Stats", bound=AnyStats)
_Counts = TypeVar("_Counts", TopicCounts, EndpointCounts)


@dataclass(frozen=True)
class Row(Generic[_Stats, _Counts]):
    """An endpoint, and what it did since the look before. There is a class of rows for each kind.

    What is not known is None, in tables "-", and never 0.

    Attributes
    ----------
    name : without its mark.
    stats : who takes part; up to some seconds older than the look.
    now, before : what moved until this look, and until the one before; None: there was none.
    seconds : between the two.
    """

    name: str
    stats: _Stats
    now: _Counts
    before: _Counts | None = None
    seconds: float = 0.0

    _of: ClassVar[Kind] = TOPIC
    _senders: ClassVar[tuple[str, ...]] = ("publisher",)
    _receivers: ClassVar[tuple[str, ...]] = ("subscriber",)

    @property
    def endpoint(self) -> str:
        """What it is called among all endpoints."""
        return self._of.mark + self.name

    @property
    def kind(self) -> str:
        """What its kind is called."""
        return kind_name(self.endpoint)

    @property
    def note(self) -> str:
        """What else is to be said in a table; "" for nothing."""
        return ""

    @property
    def memory(self) -> int:
        """Bytes of memory that it takes."""
        raise NotImplementedError

    @property
    def publishers(self) -> list[str]:
        """Who publishes, sends or writes."""
        return [str(participant) for role, participant in self.stats.participants if role in self._senders]

    @property
    def subscribers(self) -> list[str]:
        """Who subscribes or receives."""
        return [str(participant) for role, participant in self.stats.participants if role in self._receivers]

    @property
    def publishing(self) -> int:
        """How many publish, send or write that are not known to be dead."""
        return sum(
            role in self._senders and participant.alive is not False for role, participant in self.stats.participants
        )

    @property
    def subscribing(self) -> int | None:
        """How many subscribe or receive that are not known to be dead; None: nobody can tell."""
        return sum(
            role in self._receivers and participant.alive is not False for role, participant in self.stats.participants
        )

    @property
    def dead(self) -> int:
        """How many are entered that died."""
        return len({participant for _, participant in self.stats.participants if participant.alive is False})

    @property
    def messages(self) -> int | None:
        """Published, sent, or elements written so far."""
        return self.now.messages

    @property
    def lost(self) -> int | None:
        """Messages that those who subscribe have lost by now, all together."""
        return self.now.lost

    @property
    def rate(self) -> float | None:
        """Messages a second."""
        return self._growth(lambda counts: counts.messages)

    @property
    def byte_rate(self) -> float | None:
        """Bytes of payload a second."""
        return self._growth(lambda counts: counts.bytes)

    @property
    def lost_rate(self) -> float | None:
        """Messages a second that those who subscribe lose."""
        return self._growth(lambda counts: counts.lost)

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        fields = ("kind", "endpoint", "messages", "lost", "memory", "rate", "byte_rate", "lost_rate")
        return {**dataclasses.asdict(self.stats), **self._own(), **{name: getattr(self, name) for name in fields}}  # type: ignore[call-overload]

    def _own(self) -> dict[str, Any]:
        """What `--json` shows of this kind alone, or in another way than its stats have it."""
        return {}

    def _growth(self, count_of: Callable[[_Counts], int | None]) -> float | None:
        """How much more it is, a second. Less, because somebody left or a count began anew, is nothing."""
        before, now = None if self.before is None else count_of(self.before), count_of(self.now)
        return None if before is None or now is None or not self.seconds else max(0, now - before) / self.seconds


class TopicRow(Row[TopicStats, TopicCounts]):
    """A topic. Stock publishers do not count: `byte_rate` is what goes through the ring then, a little more."""

    @property
    def stock(self) -> bool:
        """Whether a stock program publishes it."""
        return self.stats.publisher_kind == "stock"

    @property
    def note(self) -> str:
        """Whether a stock program publishes it."""
        return "stock" if self.stock else ""

    @property
    def memory(self) -> int:
        """Bytes of the ring's data area."""
        return self.stats.data_bytes

    @property
    def publishers(self) -> list[str]:
        """Who publishes; stock publishers leave no name."""
        participant = publisher(self.stats)
        return [] if participant == "-" else [participant]

    @property
    def subscribers(self) -> list[str]:
        """Who subscribes; stock subscribers leave no name."""
        stock = self.stats.stock_subscribers
        return super().subscribers + ([f"{stock} stock"] if stock else [])

    @property
    def publishing(self) -> int:
        """How many publish; a stock publisher is one."""
        return super().publishing + self.stock

    @property
    def subscribing(self) -> int | None:
        """How many subscribe, stock ones among them."""
        return (super().subscribing or 0) + self.stats.stock_subscribers

    @property
    def rate(self) -> float | None:
        """Messages a second; None of stock publishers."""
        return None if self.stock else super().rate

    @property
    def byte_rate(self) -> float | None:
        """Bytes a second."""
        return self._growth(lambda counts: counts.position_bytes) if self.stock else super().byte_rate

    def _own(self) -> dict[str, Any]:
        return {"bytes": self.now.bytes}


class ChannelRow(Row[ChannelStats, EndpointCounts]):
    """A channel; `byte_rate` is of publishers that are there."""

    _of = CHANNEL

    @property
    def note(self) -> str:
        """What it is besides a plain channel."""
        return "" if self.stats.kind == "pubsub" else self.stats.kind

    @property
    def memory(self) -> int:
        """Bytes of its file and pools."""
        return self.stats.bytes

    @property
    def publishers(self) -> list[str]:
        """Who publishes, with the names of nodes."""
        return [f"{row.node} {row.participant}" for row in self.stats.publishers if not row.left]

    @property
    def subscribers(self) -> list[str]:
        """Who subscribes, with the names of nodes."""
        return [f"{row.node} {row.participant}" for row in self.stats.subscribers]

    @property
    def publishing(self) -> int:
        """How many publish, each once."""
        rows = [row for row in self.stats.publishers if not row.left and not row.superseded]
        return sum(row.participant.alive is not False for row in rows)

    @property
    def tolerance_s(self) -> float | None:
        """For how long a subscriber may pause without losing a message, at this rate; None: nobody can tell."""
        return self.stats.capacity / self.rate if self.rate and self.stats.capacity else None

    def _own(self) -> dict[str, Any]:
        return {"use": self.stats.kind, "bytes": self.now.bytes, "tolerance_s": self.tolerance_s}


class RecordRow(Row[RecordStats, EndpointCounts]):
    """A vector or board. Who reads leaves no trace."""

    _of = RECORDS
    _senders = ("writer",)

    @property
    def note(self) -> str:
        """Of which form it is, and how large."""
        record = self.stats
        keys = f"board, {in_units(record.key_count)} of {in_units(record.length)} keys"
        return keys if record.kind == "board" else f"vector of {in_units(record.length)}"

    @property
    def memory(self) -> int:
        """Bytes of its file."""
        return self.stats.bytes

    @property
    def subscribing(self) -> int | None:
        """Nobody can tell."""
        return None

    def _own(self) -> dict[str, Any]:
        said = {"form": self.stats.kind, "dtype": self.stats.dtype, "mode": f"{self.stats.mode:o}"}
        return {**said, "written": self.now.messages}


class QueueRow(Row[QueueStats, EndpointCounts]):
    """A work queue. Messages are those that were sent; nobody counts their bytes."""

    _of = QUEUE
    _senders = ("sender",)
    _receivers = ("receiver",)

    @property
    def note(self) -> str:
        """How many messages wait."""
        return f"{in_units(self.stats.depth)} of {in_units(self.stats.max_messages)} wait"

    @property
    def memory(self) -> int:
        """Bytes of its file."""
        return self.stats.bytes

    @property
    def received_rate(self) -> float | None:
        """Messages a second that were received or taken."""
        return self._growth(lambda counts: counts.received)

    def _own(self) -> dict[str, Any]:
        said = {"mode": f"{self.stats.mode:o}", "sent": self.now.messages, "received": self.now.received}
        return {**said, "received_rate": self.received_rate}


AnyRow = TopicRow | ChannelRow | RecordRow | QueueRow
ROWS: dict[Kind, type[AnyRow]] = {TOPIC: TopicRow, CHANNEL: ChannelRow, RECORDS: RecordRow, QUEUE: QueueRow}


def total(values: Iterable[float | None]) -> float | None:
    """Add up what is known; None: there is something, and nothing is known of it."""
    every = list(values)
    known = [value for value in every if value is not None]
    return None if every and not known else sum(known)

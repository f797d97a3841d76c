"""Statistics of a kind: how they are read and shown. Interface of the file stats.py of each kind."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from msgq.common.schema import Schema
from msgq.common.stats import Participant
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.topic import TopicCounts
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.impl.base import clock


class EndpointTotals(NamedTuple):
    """What `EndpointStats` has of an endpoint of any kind: bytes of memory, messages, lost messages."""

    bytes: int
    messages: int | None
    lost: int | None


class KindEndpointStats(Protocol):
    """What the frozen dataclass of statistics of each kind has."""

    @property
    def path(self) -> str:
        """Path of its file."""

    @property
    def schema(self) -> Schema | None:
        """Schema of its messages."""

    @property
    def created_ns(self) -> int | None:
        """Creation time by the host's clock."""

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Registered participants, each with its role."""


class EndpointWatch(Protocol):
    """An endpoint that is kept mapped read-only, without a trace. One thread at a time."""

    def counts(self) -> Any:
        """Return what moves (`EndpointCounts`, or of topics `TopicCounts`) within microseconds."""

    def stats(self) -> Any:
        """Return the statistics (`KindEndpointStats`) of this moment; asks the kernel which participants live."""


_StatsType = TypeVar("_StatsType", bound=KindEndpointStats)
_CountsType = TypeVar("_CountsType", TopicCounts, EndpointCounts)


@dataclass(frozen=True)
class EndpointRow(Generic[_StatsType, _CountsType]):
    """An endpoint, and what it did since the look before. Each kind has a class of rows.

    What is not known is None, in tables "-", and never 0.

    Attributes
    ----------
    endpoint : with its name prefix.
    kind : name of the kind; "frames" of a topic that announces frames.
    totals : of `stats`.
    stats : who takes part; up to some seconds older than the look.
    current_counts, previous_counts : counters at this poll and at the previous one; None: there was none.
    interval_s : seconds between the two polls.
    """

    endpoint: str
    kind: str
    totals: EndpointTotals
    stats: _StatsType
    current_counts: _CountsType
    previous_counts: _CountsType | None = None
    interval_s: float = 0.0

    #: What cannot be measured ("size", "subscribers", "lost"), each with the reason.
    unmeasured_reasons: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _sender_roles: ClassVar[tuple[str, ...]] = ("publisher",)
    _receiver_roles: ClassVar[tuple[str, ...]] = ("subscriber",)

    @property
    def note_text(self) -> str:
        """What else is to be said in a table; "" for nothing."""
        return ""

    @property
    def memory(self) -> int:
        """Bytes of memory that it takes."""
        return self.totals.bytes

    @property
    def publishers(self) -> list[str]:
        """Who publishes, sends or writes."""
        return [str(participant) for role, participant in self.stats.participants if role in self._sender_roles]

    @property
    def subscribers(self) -> list[str]:
        """Who subscribes or receives."""
        return [str(participant) for role, participant in self.stats.participants if role in self._receiver_roles]

    @property
    def live_publisher_count(self) -> int:
        """How many publish, send or write that are not known to be dead."""
        return sum(
            role in self._sender_roles and participant.alive is not False
            for role, participant in self.stats.participants
        )

    @property
    def live_subscriber_count(self) -> int | None:
        """How many subscribe or receive that are not known to be dead; None: nobody can tell."""
        return sum(
            role in self._receiver_roles and participant.alive is not False
            for role, participant in self.stats.participants
        )

    @property
    def dead_participant_count(self) -> int:
        """How many are entered that died."""
        return len({participant for _, participant in self.stats.participants if participant.alive is False})

    @property
    def messages(self) -> int | None:
        """Published, sent, or elements written so far."""
        return self.current_counts.messages

    @property
    def lost(self) -> int | None:
        """Messages that those who subscribe have lost by now, all together."""
        return self.current_counts.lost

    @property
    def message_sizes(self) -> tuple[int, int] | None:
        """Sizes of the smallest and the largest message, if all messages of the endpoint have fixed sizes."""
        return None

    @property
    def rate(self) -> float | None:
        """Messages a second."""
        return self._compute_growth_rate(lambda counts: counts.messages)

    @property
    def byte_rate(self) -> float | None:
        """Bytes of payload a second."""
        return self._compute_growth_rate(lambda counts: counts.bytes)

    @property
    def lost_rate(self) -> float | None:
        """Messages a second that those who subscribe lose."""
        return self._compute_growth_rate(lambda counts: counts.lost)

    def to_json_fields(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        names = ("kind", "endpoint", "messages", "lost", "memory", "rate", "byte_rate", "lost_rate")
        stats_fields = dataclasses.asdict(self.stats)  # type: ignore[call-overload]
        return {**stats_fields, **self._list_kind_fields(), **{name: getattr(self, name) for name in names}}

    def _list_kind_fields(self) -> dict[str, Any]:
        """What `--json` shows of this kind alone, or in another way than its stats have it."""
        return {}

    def _compute_growth_rate(self, count_of: Callable[[_CountsType], int | None]) -> float | None:
        """How much more it is, a second. Less, because somebody left or a count began anew, is nothing."""
        before, now = (
            None if self.previous_counts is None else count_of(self.previous_counts),
            count_of(self.current_counts),
        )
        return None if before is None or now is None or not self.interval_s else max(0, now - before) / self.interval_s


AnyEndpointRow = EndpointRow[Any, Any]


@dataclass(frozen=True, slots=True)
class KindStats:
    """How statistics of a kind are read and shown.

    Attributes
    ----------
    open_watch : takes a bare name and a prefix, and maps the endpoint.
    compute_totals : takes its statistics.
    row_class : class of its rows in list, top and stat.
    describe_row : takes a row; returns the lines of `msgq info` behind the first, which is the endpoint's name.
    """

    open_watch: Callable[[str, str], EndpointWatch]
    compute_totals: Callable[[Any], EndpointTotals]
    row_class: type[EndpointRow[Any, Any]]
    describe_row: Callable[[Any], Iterator[str]]


class FileAccess(NamedTuple):
    """Owner (user id) and mode (octal) of a file; None: it has no name any more."""

    owner: int | None
    mode: str | None


def read_file_access(path: str) -> FileAccess:
    """Return whose a file is, and who else may open it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:  # removed just now; the mapping is still good
        return FileAccess(None, None)
    return FileAccess(status.st_uid, f"{stat.S_IMODE(status.st_mode):o}")


def describe_schema(schema: Schema | None) -> str:
    """Return a schema's name, encoding and size as a text."""
    return (
        "none"
        if schema is None
        else f"{schema.name}, {schema.encoding}, definition of {format_count_noun(len(schema.data), 'byte')}"
    )


def format_age(created_ns: int | None) -> str:
    """Return how long ago something was made (by the host's clock), in the largest unit with at least 2."""
    if not created_ns:
        return "-"
    seconds = max(0, clock.time_ns() - created_ns) // NS_PER_S
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def sum_known_values(values: Iterable[float | None]) -> float | None:
    """Add up what is known; None: there is something, and nothing is known of it."""
    every = list(values)
    known = [value for value in every if value is not None]
    return None if every and not known else sum(known)

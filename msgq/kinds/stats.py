"""Statistics of a kind, for reading and display. Interface of the file stats.py of each kind."""

from __future__ import annotations

import dataclasses
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
from msgq.impl import backend as backends
from msgq.impl.base.files import read_file_status


class EndpointTotals(NamedTuple):
    """Totals of an endpoint of any kind, as in `EndpointStats`: bytes of memory, messages, lost messages."""

    bytes: int
    messages: int | None
    lost: int | None


class Backlog(NamedTuple):
    """Data that waits for a receiver: an amount, and its unit, "messages" or "bytes"."""

    amount: int
    unit: str


class KindEndpointStats(Protocol):
    """Common properties of the statistics of all kinds, which are frozen dataclasses."""

    @property
    def path(self) -> str:
        """Path of the endpoint's file."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages."""

    @property
    def created_ns(self) -> int | None:
        """Creation time, in ns of the host's clock."""

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Registered participants, each with its role."""


class EndpointWatch(Protocol):
    """A mapped endpoint for repeated reads: read-only and passive. One thread at a time."""

    def counts(self) -> Any:
        """Return the counters (`EndpointCounts`, or `TopicCounts` for topics) within microseconds."""

    def stats(self) -> Any:
        """Return the current statistics (`KindEndpointStats`). The call asks the kernel which participants live."""


_StatsType = TypeVar("_StatsType", bound=KindEndpointStats)
_CountsType = TypeVar("_CountsType", TopicCounts, EndpointCounts)


@dataclass(frozen=True)
class EndpointRow(Generic[_StatsType, _CountsType]):
    """An endpoint, and its activity since the previous poll. Each kind has its own class of rows.

    Unknown values are None, and "-" in tables.

    Attributes:
        endpoint: name with the name prefix of its kind.
        kind: name of the kind; "frames" for a topic that announces frames.
        stats: statistics with participants; up to some seconds older than the poll.
        current_counts: counters at this poll.
        previous_counts: counters at the previous poll; None: this is the first poll.
        interval_s: seconds between the two polls.
    """

    endpoint: str
    kind: str
    stats: _StatsType
    current_counts: _CountsType
    previous_counts: _CountsType | None = None
    interval_s: float = 0.0

    #: True: a meter measures more than the counters, for example sizes. `msgq check` then uses a meter.
    has_better_meter: ClassVar[bool] = False
    #: Values that cannot be measured ("size", "subscribers", "lost"), each with the reason.
    unmeasured_reasons: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _sender_roles: ClassVar[tuple[str, ...]] = ("publisher",)
    _receiver_roles: ClassVar[tuple[str, ...]] = ("subscriber",)

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """Return the totals of an endpoint from its statistics."""
        raise NotImplementedError

    def describe(self) -> Iterator[str]:
        """Yield the lines of `msgq info` after the line with the name."""
        raise NotImplementedError

    @property
    def note_text(self) -> str:
        """Note for a table; "": none."""
        return ""

    @property
    def memory(self) -> int:
        """Bytes of memory of the endpoint."""
        return self.compute_totals(self.stats).bytes

    @property
    def sending_participants(self) -> list[Participant]:
        """Registered publishers, senders or writers."""
        return [participant for role, participant in self.stats.participants if role in self._sender_roles]

    @property
    def receiving_participants(self) -> list[Participant]:
        """Registered subscribers or receivers."""
        return [participant for role, participant in self.stats.participants if role in self._receiver_roles]

    @property
    def publishers(self) -> list[str]:
        """Names of publishers, senders or writers."""
        return [str(participant) for participant in self.sending_participants]

    @property
    def subscribers(self) -> list[str]:
        """Names of subscribers or receivers."""
        return [str(participant) for participant in self.receiving_participants]

    @property
    def live_publisher_count(self) -> int:
        """Number of publishers, senders or writers that are not known to be dead."""
        return sum(participant.alive is not False for participant in self.sending_participants)

    @property
    def live_subscriber_count(self) -> int | None:
        """Number of subscribers or receivers that are not known to be dead; None: unknown."""
        return sum(participant.alive is not False for participant in self.receiving_participants)

    @property
    def dead_participant_count(self) -> int:
        """Number of registered participants that are dead."""
        return len({participant for _, participant in self.stats.participants if participant.alive is False})

    @property
    def is_dead(self) -> bool:
        """True if no process uses the endpoint any more. Kinds that keep their content are never dead."""
        return False

    @property
    def messages(self) -> int | None:
        """Number of published or sent messages, or of written elements."""
        return self.current_counts.messages

    @property
    def lost(self) -> int | None:
        """Number of messages lost by all subscribers."""
        return self.current_counts.lost

    @property
    def backlog(self) -> Backlog | None:
        """Data that waits for the slowest living subscriber, or in a queue; None: no subscriber, or unknown."""
        return None

    @property
    def message_sizes(self) -> tuple[int, int] | None:
        """Bytes of the smallest and the largest message, if all messages of the endpoint have fixed sizes."""
        return None

    @property
    def rate(self) -> float | None:
        """Messages per second."""
        return self._compute_growth_rate(lambda counts: counts.messages)

    @property
    def byte_rate(self) -> float | None:
        """Payload bytes per second."""
        return self._compute_growth_rate(lambda counts: counts.bytes)

    @property
    def lost_rate(self) -> float | None:
        """Messages per second that subscribers lose."""
        return self._compute_growth_rate(lambda counts: counts.lost)

    def to_json_fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        names = ("kind", "endpoint", "messages", "lost", "memory", "rate", "byte_rate", "lost_rate")
        stats_fields = dataclasses.asdict(self.stats)  # type: ignore[call-overload]
        return {**stats_fields, **self._list_kind_fields(), **{name: getattr(self, name) for name in names}}

    def _list_kind_fields(self) -> dict[str, Any]:
        """Return the fields for `--json` that only this kind has, or that replace fields of its statistics."""
        return {}

    def _compute_growth_rate(self, count_of: Callable[[_CountsType], int | None]) -> float | None:
        """Return the growth of a counter per second. A decrease, for example after a participant left, counts as 0."""
        before, now = (
            None if self.previous_counts is None else count_of(self.previous_counts),
            count_of(self.current_counts),
        )
        return None if before is None or now is None or not self.interval_s else max(0, now - before) / self.interval_s


AnyEndpointRow = EndpointRow[Any, Any]


@dataclass(frozen=True, slots=True)
class KindStats:
    """Functions that read and format the statistics of a kind.

    Attributes:
        open_watch: takes a bare name and a prefix; maps the endpoint.
        row_class: class of rows in list, info, top and stat.
    """

    open_watch: Callable[[str, str], EndpointWatch]
    row_class: type[EndpointRow[Any, Any]]


class FileAccess(NamedTuple):
    """User id of the owner, and mode (octal) of a file; None: the file is unlinked."""

    owner: int | None
    mode: str | None


def read_file_access(path: str) -> FileAccess:
    """Return the owner and the mode of a file."""
    status = read_file_status(path)  # None: removed just now; the mapping is still good
    return FileAccess(None, None) if status is None else FileAccess(status.owner, f"{status.mode:o}")


def describe_schema(schema: Schema | None) -> str:
    """Return a text with name, encoding and size of a schema."""
    if schema is None:
        return "none"
    size = f"definition of {format_count_noun(len(schema.data), 'byte')}" if schema.data else "no definition"
    return f"{schema.name}, {schema.encoding}, {size}"


def format_age(created_ns: int | None) -> str:
    """Return the time since a creation time, in the largest unit with a value of at least 2."""
    if not created_ns:
        return "-"
    seconds = max(0, backends.time_ns() - created_ns) // NS_PER_S
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def sum_known_values(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None: all values are unknown."""
    every = list(values)
    counts = [value for value in every if value is not None]
    return None if every and not counts else sum(counts)

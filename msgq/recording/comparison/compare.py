"""Comparison of two runs, by endpoint and order. Numbers may have tolerances if a schema is known."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple

from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.common.selection import EndpointChoice, SelectedEndpoints, select_endpoints
from msgq.common.units import NS_PER_S
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.errors import RecordingError
from msgq.kinds import find_kind, get_kind
from msgq.recording.comparison.value_diff import Tolerance, find_value_difference
from msgq.recording.log_reader import LogReader
from msgq.recording.reader.message import Message
from msgq.simulation import SentMessage, Simulation

__all__ = ["Comparison", "Difference", "EndpointComparison", "Tolerance", "compare"]

_EXACT_TOLERANCE = Tolerance()
_UNMATCHED_BYTES_MAX = 1 << 30  # bytes of messages without a partner yet
_MESSAGE_OVERHEAD_BYTES = 200  # bytes of Python objects for each message

#: Comparable outputs. A simulation counts with the messages that its nodes sent, without played messages.
ComparedOutputs = LogReader | str | PathLike[str] | Simulation | Iterable[SentMessage] | Iterable[Message]
#: Tolerances by endpoint, or by (endpoint, field); "*" is every endpoint. A number is an absolute tolerance.
FieldTolerances = Mapping[str | tuple[str, str], Tolerance | float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two different messages, or a message without a counterpart.

    Attributes:
        endpoint: name of the endpoint.
        index: number of the message within the endpoint, from 0.
        field: field of the difference, for example "pose.x" or "ranges[3]". "": the whole message. ".time", ".key" (of
            a board) and ".priority" (of a work queue) are properties of the message.
        time_a: time in the first log, ns; None: no such message.
        time_b: time in the second log, ns; None: no such message.
        a: value of the field in the first log, decoded by the schema, else bytes. `Undecoded` if decoding failed.
        b: value of the field in the second log, as `a`.
    """

    endpoint: str
    index: int
    field: str
    time_a: int | None
    time_b: int | None
    a: Any
    b: Any

    def __str__(self) -> str:
        field = self.field if self.field.isprintable() else repr(self.field)  # it is made of names in the message
        where = f"{self.endpoint!r} message {self.index}" + (f", {field}" if field else "")
        if self.time_a is None or self.time_b is None:
            side = "the first" if self.time_b is None else "the second"
            value, time = (self.a, self.time_a) if self.time_b is None else (self.b, self.time_b)
            return f"{where}: only {side} has it: {_format_value(value)} at {time} ns"
        return f"{where}: {_format_value(self.a)} at {self.time_a} ns, {_format_value(self.b)} at {self.time_b} ns"


@dataclass(frozen=True, slots=True)
class EndpointComparison:
    """Counts of an endpoint: messages of each side, and different pairs.

    Attributes:
        a: number of messages of the first side.
        b: number of messages of the second side.
        different: number of pairs that differ. Messages without a counterpart do not count.
    """

    a: int
    b: int
    different: int

    @property
    def same(self) -> bool:
        """True if both sides have the same number of messages, and all pairs agree."""
        return self.a == self.b and not self.different


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of `compare`. True in a condition if the runs are the same.

    Attributes:
        endpoints: an `EndpointComparison` by endpoint name.
        first: earliest difference; None: no difference.
    """

    endpoints: dict[str, EndpointComparison]
    first: Difference | None

    def __bool__(self) -> bool:
        return self.first is None

    def __str__(self) -> str:
        messages = sum(tally.a for tally in self.endpoints.values())
        if self.first is None:
            return f"the same: {messages} messages compared, of {len(self.endpoints)} endpoints"
        lines = [f"different: {self.first}"]
        for name, tally in self.endpoints.items():
            if not tally.same:
                lines.append(f"{name!r}: {tally.a} messages and {tally.b}, {tally.different} differ")
        return "\n".join(lines)


def compare(
    a: ComparedOutputs,
    b: ComparedOutputs,
    tolerances: FieldTolerances = MappingProxyType({}),
    *,
    endpoints: EndpointChoice | None = None,
    time_tolerance: float | None = None,
) -> Comparison:
    """Compare two logs, two runs of a simulation, or a run with a recorded reference.

    The n-th message of an endpoint is compared with the n-th message of the other side. Messages with equal bytes are
    equal. Other messages are decoded if a side has a schema. Decoded messages are equal if all numbers are within the
    tolerance, and all other values are equal. NaN equals NaN. Without a schema, the bytes decide. For a work queue,
    sent messages and their priorities are compared; a recording contains them if the events of the queue have payloads.
    The publisher does not matter.

    Args:
        a: first side: a `LogReader`, the path of a log, a `Simulation` (the messages of its nodes), or an iterable of
            `Message` or `SentMessage`. Both sides are read once, in parallel. Messages wait in memory for their
            counterparts.
        b: second side, as `a`.
        tolerances: tolerance by endpoint, by (endpoint, field) such as ("pose", "position.x"), or by "*" for all. The
            most specific entry counts. An entry of a field includes nested fields. A number is an absolute tolerance.
            math.inf ignores the field.
        endpoints: endpoints to compare: a name or compiled regular expression, or a list of them; None: all endpoints
            of both sides.
        time_tolerance: maximum difference of times in seconds, each counted from the first message of its side; None:
            times are ignored. The time is publish_time for a log, and virtual time for a simulation.

    Raises:
        RecordingError: a log cannot be read, or over 1 GiB of messages wait for their counterparts.
        InvalidValueError: `endpoints` is empty.
    """
    comparator = _RunComparator(tolerances, time_tolerance)
    only = select_endpoints(endpoints)
    sides = [_iter_compared_messages(a, only), _iter_compared_messages(b, only)]
    over = [False, False]
    while not all(over):
        for side in (0, 1):
            item = next(sides[side], None)
            over[side] = item is None
            if item is not None:
                comparator.compare_next_message(side, item, alone=over[1 - side])
    return comparator.build_comparison()


class _ComparedMessage(NamedTuple):
    """A message and `extra_field`: the name and value of another compared property, a board's key or a priority."""

    endpoint: str
    time_ns: int
    data: bytes
    schema: Schema | None
    extra_field: tuple[str, Any] = ("", None)


def _iter_compared_messages(outputs: ComparedOutputs, only: SelectedEndpoints) -> Iterator[_ComparedMessage]:
    if isinstance(outputs, Simulation):
        outputs = [message for message in outputs.sent_messages if message.node != "play"]
    elif isinstance(outputs, (str, PathLike)):
        outputs = LogReader(outputs)
    for message in outputs:
        if message.endpoint in only:
            item = _convert_sent_message(message) if isinstance(message, SentMessage) else _convert_log_message(message)
            if item is not None:
                yield item


def _convert_sent_message(message: SentMessage) -> _ComparedMessage | None:
    playback = get_kind(message.kind).playback
    encoded = playback.encode_sent(message.data, message.priority, 0, message.time_ns)
    compared = playback.extract_comparable(encoded[0] if encoded else message.data, message.key)
    return (
        None
        if compared is None
        else _ComparedMessage(message.endpoint, message.time_ns, compared.data, message.schema, compared.extra)
    )


def _convert_log_message(message: Message) -> _ComparedMessage | None:
    """Return the compared properties of a recorded message. For work queues, only sent messages count; None: others."""
    kind = find_kind(message.kind)
    if kind is None:
        return _ComparedMessage(
            message.endpoint, message.publish_time, message.data, message.schema, ("key", message.key)
        )
    compared = kind.playback.extract_comparable(message.data, message.key)
    if compared is None:
        return None
    schema = message.schema if kind.playback.played_first_byte < 0 else None  # the recorded schema is that of events
    return _ComparedMessage(message.endpoint, message.publish_time, compared.data, schema, compared.extra)


@dataclass(slots=True)
class _EndpointComparisonState:
    """Pending messages of an endpoint: messages of one side that have no counterpart yet."""

    message_counts: list[int] = field(default_factory=lambda: [0, 0])
    unmatched_messages: tuple[deque[_ComparedMessage], deque[_ComparedMessage]] = field(
        default_factory=lambda: (deque(), deque())
    )
    schema: Schema | None = None
    difference_count: int = 0
    first_difference: Difference | None = None


class _RunComparator:
    def __init__(self, tolerances: FieldTolerances, time_tolerance: float | None) -> None:
        self._tolerances = {
            key: value if isinstance(value, Tolerance) else Tolerance(value) for key, value in tolerances.items()
        }
        self._time_tolerance_ns = None if time_tolerance is None else time_tolerance * NS_PER_S
        self._start_times_ns: list[int | None] = [None, None]
        self._endpoint_states: dict[str, _EndpointComparisonState] = {}
        self._payload_decoder = PayloadDecoder()
        self._unmatched_bytes = 0

    def compare_next_message(self, side: int, item: _ComparedMessage, alone: bool) -> None:
        """Compare the next message of a side with its counterpart.

        If the counterpart is not read yet, store the message.
        """
        channel = self._endpoint_states.setdefault(item.endpoint, _EndpointComparisonState())
        if self._start_times_ns[side] is None:
            self._start_times_ns[side] = item.time_ns
        channel.schema = item.schema or channel.schema
        other = channel.unmatched_messages[1 - side]
        channel.message_counts[side] += 1
        if not other:
            # The report shows only the first of the messages that only one side has.
            if not (alone and channel.unmatched_messages[side]):
                channel.unmatched_messages[side].append(item)
                self._count_unmatched_bytes(item, 1)
            return
        self._count_unmatched_bytes(other[0], -1)
        a, b = (item, other.popleft()) if side == 0 else (other.popleft(), item)
        difference = self._find_message_difference(a, b, channel.schema)
        if difference is not None:
            channel.difference_count += 1
            if channel.first_difference is None:
                index = min(channel.message_counts) - 1
                channel.first_difference = Difference(
                    item.endpoint, index, difference[0], a.time_ns, b.time_ns, *difference[1:]
                )

    def _count_unmatched_bytes(self, item: _ComparedMessage, sign: int) -> None:
        """Update the bytes of pending messages."""
        self._unmatched_bytes += sign * (len(item.data) + _MESSAGE_OVERHEAD_BYTES)
        if self._unmatched_bytes > _UNMATCHED_BYTES_MAX:
            text = "more than 1 GiB of messages wait for their counterparts; compare fewer endpoints, or a shorter time"
            raise RecordingError(text, item.endpoint)

    def _find_message_difference(
        self, a: _ComparedMessage, b: _ComparedMessage, schema: Schema | None
    ) -> tuple[str, Any, Any] | None:
        begin_a, begin_b = self._start_times_ns
        if self._time_tolerance_ns is not None and begin_a is not None and begin_b is not None:
            times = a.time_ns - begin_a, b.time_ns - begin_b
            if abs(times[0] - times[1]) > self._time_tolerance_ns:
                return (".time", *times)
        if a.extra_field != b.extra_field:
            return f".{a.extra_field[0]}", a.extra_field[1], b.extra_field[1]
        if a.data == b.data:
            return None
        value_a, value_b = self._decode_value(a, schema), self._decode_value(b, schema)
        if not isinstance(value_a, (bytes, Undecoded)) and not isinstance(value_b, (bytes, Undecoded)):
            try:
                return find_value_difference(
                    value_a, value_b, lambda path: self._find_field_tolerance(a.endpoint, path)
                )
            except Exception as error:  # messages may be objects of any library. Their bytes differ
                raise_handler_error(error)
                reason = f"the message cannot be compared: {error or type(error).__name__}"
                value_a, value_b = Undecoded(a.data, reason), Undecoded(b.data, reason)
        if math.isinf(self._find_field_tolerance(a.endpoint, "").absolute):
            return None
        shown_a = value_a if isinstance(value_a, Undecoded) else a.data
        return "", shown_a, value_b if isinstance(value_b, Undecoded) else b.data

    def _decode_value(self, item: _ComparedMessage, schema: Schema | None) -> Any:
        return self._payload_decoder.decode_payload(item.schema or schema, item.data)

    def _find_field_tolerance(self, endpoint: str, path: str) -> Tolerance:
        """Return the most specific tolerance of a field."""
        for name in (endpoint, "*"):
            inner = path
            while inner:
                if (tolerance := self._tolerances.get((name, inner))) is not None:
                    return tolerance
                inner = inner[: max(inner.rfind("."), inner.rfind("["), 0)]
            if (tolerance := self._tolerances.get(name)) is not None:
                return tolerance
        return _EXACT_TOLERANCE

    def build_comparison(self) -> Comparison:
        """Return the result. Messages without a counterpart count as differences."""
        firsts = []
        for endpoint, channel in self._endpoint_states.items():
            for side in (0, 1):
                if channel.first_difference is None and channel.unmatched_messages[side]:
                    item = channel.unmatched_messages[side][0]
                    alone = (item.time_ns, None, self._decode_value(item, channel.schema), None)
                    ends = alone if side == 0 else (alone[1], alone[0], alone[3], alone[2])
                    channel.first_difference = Difference(endpoint, min(channel.message_counts), "", *ends)
            if channel.first_difference is not None:
                firsts.append(channel.first_difference)
        tallies = {
            name: EndpointComparison(channel.message_counts[0], channel.message_counts[1], channel.difference_count)
            for name, channel in sorted(self._endpoint_states.items())
        }
        return Comparison(tallies, min(firsts, key=self._compute_time_in_run, default=None))

    def _compute_time_in_run(self, difference: Difference) -> int:
        """Return the time of a difference, in ns from the first message of its side."""
        time_ns, begin = (
            (difference.time_b, self._start_times_ns[1])
            if difference.time_a is None
            else (difference.time_a, self._start_times_ns[0])
        )
        return (time_ns or 0) - (begin or 0)


def _format_value(value: Any) -> str:
    if isinstance(value, Undecoded):
        return f"{_format_value(value.data)} ({value.reason})"
    try:
        text = repr(value)
    except Exception as error:  # for example, an integer has too many digits
        raise_handler_error(error)
        text = f"the value cannot be shown: {error or type(error).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."

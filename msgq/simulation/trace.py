"""Trace of a simulation: what happened to each message, and which node ran, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.impl.fake.endpoint_state import MessageId
from msgq.kinds.simulation import FaultKind, SentMessage
from msgq.simulation.choices import ChoiceSequence

if TYPE_CHECKING:
    from msgq.decoding.payload_decoder import PayloadDecoder

EventKind = Literal["arrive", "take", "unheard", "run"] | FaultKind

EVENTS_MAX = 10_000  # newest events of a trace
_PAYLOAD_CHARACTERS_MAX = 40
#: Time in ns, kind, node and message.
_TraceEntry = tuple[int, EventKind, str, MessageId | None]

#: Verb of each kind of event, and the preposition before the node.
EVENT_VERBS: dict[EventKind, tuple[str, str]] = {
    "arrive": ("arrives", "at"),
    "take": ("is taken", "by"),
    "unheard": ("has no subscriber", ""),
    "run": ("runs", ""),
    "drop": ("is dropped", "on the way to"),
    "delay": ("is delayed", "on the way to"),
    "duplicate": ("is duplicated", "on the way to"),
    "reorder": ("is reordered", "on the way to"),
    "lap": ("laps", ""),
    "restart": ("restarts", ""),
}


@dataclass(frozen=True, slots=True)
class SimulationEvent:
    """An event of a simulation.

    Attributes:
        time_ns: virtual time in ns.
        kind: "arrive": the message is at its receiver. "take": a node takes the message of a queue. "unheard": the
            message has no subscriber. "run": a program continues after a wait. Other kinds are faults; see `Fault`.
        node: node that receives, runs or restarts; for "unheard", the sending node. If a message arrives in a queue, or
            a write takes effect: the name of the endpoint.
        endpoint: name of the endpoint with the prefix of its kind; "" for "run" and "restart".
        number: number of the message on the endpoint, from 1; 0 for "run" and "restart".
        sender: node that sent the message; "": not known, because the trace no longer has the message.
        payload: short text of the payload, decoded by the schema of the endpoint. Comparisons of events ignore the
            payload.
    """

    time_ns: int
    kind: EventKind
    node: str
    endpoint: str = ""
    number: int = 0
    sender: str = ""
    payload: str = field(default="", compare=False)

    @property
    def message(self) -> str:
        """Endpoint and number of the message, such as "deposit #2"; "": the event has no message."""
        return f"{self.endpoint} #{self.number}" if self.endpoint else ""

    @property
    def predicate(self) -> str:
        """The event without its subject, such as "arrives at ledger"."""
        verb, preposition = EVENT_VERBS[self.kind]
        if not self.endpoint or self.kind == "unheard" or self.node == self.endpoint:
            return verb
        return " ".join(filter(None, (verb, preposition, self.node)))

    @property
    def identity(self) -> tuple[EventKind, str, str, int]:
        """The event without its time."""
        return self.kind, self.node, self.endpoint, self.number

    @property
    def seconds(self) -> float:
        """Virtual time in seconds."""
        return self.time_ns / NS_PER_S

    def __str__(self) -> str:
        text = f"{self.seconds} s: {self.message or self.node} {self.predicate}"
        return f"{text}: {self.payload}" if self.payload else text


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Consecutive events of a simulation.

    Attributes:
        simulation: the call that repeats the simulation.
        earlier: number of events before.
        later: number of events after.
    """

    simulation: str
    earlier: int
    events: list[SimulationEvent]
    later: int = 0

    def format_lines(self) -> list[str]:
        """Return a line for each event, and for the numbers of the other events."""
        return [
            *([f"({format_count_noun(self.earlier, 'earlier event')})"] if self.earlier else []),
            *map(str, self.events),
            *([f"({format_count_noun(self.later, 'later event')})"] if self.later else []),
        ]

    def __str__(self) -> str:
        return "\n".join(self.format_lines())


class Trace:
    """The newest 10,000 events of a simulation. The trace stores entries, and makes texts only when they are read.

    Args:
        order: choices of the simulation.
    """

    def __init__(self, order: ChoiceSequence) -> None:
        self._order = order
        self._sent: deque[tuple[MessageId, Sequence[SentMessage]]] = deque(maxlen=EVENTS_MAX)
        self._entries: deque[_TraceEntry] = deque(maxlen=EVENTS_MAX)
        self._entry_count = 0

    def __str__(self) -> str:
        return str(self.select_last())

    @property
    def events(self) -> list[SimulationEvent]:
        """Events up to now, oldest first."""
        from msgq.decoding.payload_decoder import PayloadDecoder  # late: it loads all decoders, which few runs need

        decoder, sent = PayloadDecoder(), dict(self._sent)
        return [_make_event(entry, sent.get(entry[3], ()) if entry[3] else (), decoder) for entry in self._entries]

    @property
    def left_out(self) -> int:
        """Number of older events, which are not in `events`."""
        return self._entry_count - len(self._entries)

    @property
    def simulation(self) -> str:
        """The call that repeats the simulation: "Simulation(seed=7)"."""
        return f"Simulation({self._order})"

    def select_last(self, limit: int = EVENTS_MAX) -> EventWindow:
        """Return the last events."""
        events = self.events[-limit:]
        return EventWindow(self.simulation, self._entry_count - len(events), events)

    def count_common_events(self, other: Trace) -> int:
        """Return the number of first events that are equal in both traces; 0 if one trace lacks its first events."""
        if self.left_out or other.left_out:
            return 0
        pairs = zip(self._entries, other._entries, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    # ---- the engine's side ----

    def add_message(self, message_id: MessageId, messages: Sequence[SentMessage]) -> None:
        """Store a sent message. A write of several elements of a vector has several `SentMessage` objects."""
        self._sent.append((message_id, messages))

    def add_event(self, time_ns: int, kind: EventKind, node: str, message_id: MessageId | None = None) -> None:
        """Add an event."""
        self._entries.append((time_ns, kind, node, message_id))
        self._entry_count += 1


def _make_event(entry: _TraceEntry, messages: Sequence[SentMessage], decoder: PayloadDecoder) -> SimulationEvent:
    time_ns, kind, node, message_id = entry
    if message_id is None:
        return SimulationEvent(time_ns, kind, node)
    if not messages:  # the trace no longer has the message
        return SimulationEvent(time_ns, kind, node, *message_id)
    payload = _describe_payload(messages[0], decoder)
    if len(messages) > 1:
        payload += f" and {len(messages) - 1} more"
    return SimulationEvent(time_ns, kind, node, *message_id, messages[0].node, payload)


def _describe_payload(message: SentMessage, decoder: PayloadDecoder) -> str:
    """Return a short text of a payload: a decoded value, or the first bytes."""
    from msgq.decoding.json_values import format_json_text
    from msgq.decoding.payload_decoder import Undecoded, convert_decoded_to_json

    head = message.data[:_PAYLOAD_CHARACTERS_MAX]
    value = convert_decoded_to_json(decoder.decode_payload(message.schema, message.data), message.data)
    text = repr(head) if isinstance(value, Undecoded) else format_json_text(value, ensure_ascii=False)
    if len(text) > _PAYLOAD_CHARACTERS_MAX or (isinstance(value, Undecoded) and len(head) < len(message.data)):
        text = text[: _PAYLOAD_CHARACTERS_MAX - 3] + "..."
    return f"{message.key}={text}" if message.key else text

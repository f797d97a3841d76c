"""Sending recorded messages again. Interface of the file playback.py of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema
from msgq.errors import SegmentError, WaitTimeoutError
from msgq.impl import backend as backends
from msgq.impl.fake.bus import current_bus
from msgq.impl.sockets.publishing import wait_for_readers

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket

_POLL_INTERVAL_S = 0.01  # time between two counts of readers


class PlaybackMessage(NamedTuple):
    """A message to play.

    Attributes:
        time_ns: time in ns since the epoch.
        endpoint: name of the endpoint with the prefix of its kind.
        data: data as recorded: for a vector a change, for a work queue an event.
        age_ns: age of the origin at the publishing time, in ns; None: unknown.
        source: kind, publisher, key and options of the message.
        schema: description of the data, if known.
    """

    time_ns: int
    endpoint: str
    data: bytes
    age_ns: int | None = None
    source: MessageSource = TOPIC_SOURCE
    schema: Schema | None = None


class EndpointSpec(NamedTuple):
    """An endpoint to play to.

    Attributes:
        endpoint: name with the prefix of its kind.
        kind: kind, as in `MessageSource`.
        schema: schema of the recorded messages.
        options: options to create the endpoint again, from the recording. The options may be invalid.
        max_message_bytes: bytes of the largest message; 0: unknown.
        tracked: True if the recorded topic was tracked.
        publishers: names of the publishers of a channel.
        keys: keys of a board.
        sample_message: for frames: the first picture, which determines the layout of the stream.
        changes_schema: True if the recorded messages have several schemas.
    """

    endpoint: str
    kind: str = TOPIC_SOURCE.kind
    schema: Schema | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    max_message_bytes: int = 0
    tracked: bool = False
    publishers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    sample_message: bytes = b""
    changes_schema: bool = False

    def get_positive_option(self, option: str) -> int | None:
        """Return an option that is a positive number; None: missing."""
        value = self.options.get(option)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def get_flag_option(self, option: str) -> bool | None:
        """Return an option that is true or false; None: missing."""
        value = self.options.get(option)
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class PlaybackTarget:
    """Place of the played endpoints.

    Attributes:
        backend: "msgq", "zmq" or "fake".
        prefix: prefix of the endpoints; "": none.
        segment_size: bytes of new rings; 0: the necessary size.
        take_over: True: also publish if a living or a stock process publishes. The publisher then gets an error from
            its next send.
        shared: objects that the writers of this target share, by name.
    """

    backend: str
    prefix: str = ""
    segment_size: int = 0
    take_over: bool = False
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def backend_module(self) -> ModuleType:
        """Module of the backend."""
        return backends.load_backend(self.backend)

    def time_ns(self) -> int:
        """Return the current time of the backend, in ns."""
        return backends.time_ns(self.backend_module)

    def compute_origin_time(self, age_ns: int | None) -> int:
        """Return the origin time in ns for an origin of this age; 0: unknown."""
        return 0 if age_ns is None else max(1, self.time_ns() - age_ns)

    def wait_for_reader(self, count_readers: Callable[[], int], timeout: float, endpoint: str) -> bool:
        """Wait up to `timeout` seconds for a living reader, on the fake backend in virtual time.

        Args:
            count_readers: returns the number of readers that are not known to be dead.

        Returns:
            True if a reader exists.
        """
        bus = current_bus() if self.backend == "fake" else None
        try:
            wait_for_readers(lambda: (count_readers(), None), timeout, _POLL_INTERVAL_S, 1, endpoint, bus)
        except WaitTimeoutError:
            return False
        return True


class UnplayableError(Exception):
    """An endpoint or a message cannot be played. The text has the reason, and the player continues."""


class EndpointWriter:
    """Sends to one endpoint. One thread at a time.

    Attributes:
        spec: specification of the endpoint.
    """

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec

    def send(self, message: PlaybackMessage) -> None:
        """Send a message.

        Raises:
            UnplayableError: the message cannot be played.
            QueueFullError: the queue has no room now.
            Exception: errors of the publisher, writer or queue pass through.
        """
        raise NotImplementedError

    def restore(self, messages: Iterable[PlaybackMessage]) -> None:
        """Set the state to the last change of each element or key. The changes are given oldest first.

        Only records have a state. For other kinds, the call has no effect.
        """

    @property
    def ring_socket(self) -> PubSocket | None:
        """Socket for sending many messages of equal size at once; None: not supported."""
        return None

    def wait_for_readers(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a subscriber that is not known to be dead. Return True if one exists.

        For records and queues the call returns True at once, because they keep their content.
        """
        return True

    def close(self) -> None:
        """Close the writer. A second close has no effect."""
        raise NotImplementedError


def make_mismatch_error(error: SegmentError, endpoint: str) -> SegmentError:
    """Return the error for an existing endpoint whose configuration differs from the recording's."""
    difference = str(error).removeprefix(f"{error.endpoint!r}: ").partition(";")[0]
    advice = "choose another prefix, remap the endpoint, or remove the existing one"
    return type(error)(f"{difference}: the endpoint differs from the recording; {advice}", endpoint)


def make_usable_schema(schema: Schema | None) -> Schema | None:
    """Return a schema that an endpoint can store. Schemas of other programs may be too large, or have no name."""
    try:
        return schema and Schema(schema.name, schema.encoding, schema.data, schema_encoding=schema.schema_encoding)
    except ValueError:
        return None


class MessageSample(Protocol):
    """Reads the first messages of a recorded endpoint before the endpoint is opened."""

    data: bytes
    refusal_reason: str

    def add(self, data: bytes) -> bool:
        """Add a message. Return True if no more messages are needed.

        Afterwards, `data` is the value for `EndpointSpec.sample_message`, and `refusal_reason` is the reason why the
        endpoint cannot be played ("": playable).
        """


class ComparedMessage(NamedTuple):
    """Properties of a message that a comparison of two runs uses.

    Attributes:
        data: payload without values that differ in each run, such as times.
        extra: other compared properties by name: a board's key, a priority.
    """

    data: bytes
    extra: tuple[str, Any]


@dataclass(frozen=True, slots=True)
class KindPlayback:
    """Functions that play recorded messages of a kind.

    Attributes:
        open_writer: takes an `EndpointSpec` and a `PlaybackTarget`; opens the endpoint, and creates it if necessary.
            Raises `UnplayableError` if that is impossible.
        open_sample: returns a `MessageSample`. None: no sample is needed.
    """

    open_writer: Callable[[EndpointSpec, PlaybackTarget], EndpointWriter]
    open_sample: Callable[[], MessageSample] | None = None

    #: True: the ZMQ backend has endpoints of this kind.
    is_carried_by_zmq: ClassVar[bool] = False
    #: First byte of all messages that are sent again; other messages are events, and are omitted. -1: any.
    played_first_byte: ClassVar[int] = -1

    def make_valid_name(self, name: str) -> str:
        """Return a recorded name without parts that are invalid for this kind."""
        return name

    def find_announced_endpoint(self, name: str) -> str | None:
        """Return the endpoint that the writer of a recorded name publishes by itself; None: no such endpoint."""
        return None

    def create_endpoint(self, spec: EndpointSpec) -> bool:
        """Create an endpoint of a simulation without a publisher. Return False if a writer must create it."""
        return False

    def encode_sent(self, data: bytes, priority: int, number: int, time_ns: int) -> tuple[bytes, Schema] | None:
        """Return the recorded form and schema of a sent message; None: as sent. `number`: from 1 on the endpoint."""
        return None

    def extract_comparable(self, data: bytes, key: str) -> ComparedMessage | None:
        """Return the compared properties of a recorded message; None: not compared."""
        return ComparedMessage(data, ("key", key))

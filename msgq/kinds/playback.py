"""Sending recorded messages again. Interface of the file playback.py of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema
from msgq.errors import SegmentError
from msgq.impl import backend as backends
from msgq.impl.base import clock
from msgq.impl.fake.bus import current_bus

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket


class PlaybackMessage(NamedTuple):
    """A message to play.

    Attributes
    ----------
    time_ns : time in ns since the epoch.
    endpoint : name of the endpoint with the prefix of its kind.
    data : data as recorded: for a vector a change, for a work queue an event.
    age_ns : age of the origin at the publishing time, in ns; None: unknown.
    source : kind, publisher, key and options of the message.
    schema : description of the data, if known.
    """

    time_ns: int
    endpoint: str
    data: bytes
    age_ns: int | None = None
    source: MessageSource = TOPIC_SOURCE
    schema: Schema | None = None


class EndpointSpec(NamedTuple):
    """An endpoint to play to.

    Attributes
    ----------
    endpoint : name with the prefix of its kind.
    kind : kind, as in `MessageSource`.
    schema : schema of the recorded messages.
    options : options to create the endpoint again, from the recording. The options may be invalid.
    max_message_bytes : bytes of the largest message; 0: unknown.
    tracked : True if the recorded topic was tracked.
    publishers : names of the publishers of a channel.
    keys : keys of a board.
    sample_message : for frames: the first picture, which determines the layout of the stream.
    changes_schema : True if the recorded messages have several schemas.
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


class PlaybackTarget(NamedTuple):
    """Place of the played endpoints.

    Attributes
    ----------
    backend : "msgq", "zmq" or "fake".
    prefix : prefix of the endpoints; "": none.
    segment_size : bytes of new rings; 0: the necessary size.
    take_over : True: also publish if a living process publishes. The living publisher then gets an error from its next
        send.
    """

    backend: str
    prefix: str = ""
    segment_size: int = 0
    take_over: bool = False

    @property
    def backend_module(self) -> ModuleType:
        """Module of the backend."""
        return backends.load_backend(self.backend)

    def time_ns(self) -> int:
        """Return the current time of the backend, in ns."""
        return current_bus().clock.time_ns() if self.backend == "fake" else clock.time_ns()

    def compute_origin_time(self, age_ns: int | None) -> int:
        """Return the origin time in ns for an origin of this age; 0: unknown."""
        return 0 if age_ns is None else max(1, self.time_ns() - age_ns)


class UnplayableError(Exception):
    """An endpoint or a message cannot be played. The text has the reason, and the player continues."""


class EndpointWriter:
    """Sends to one endpoint. One thread at a time.

    Attributes
    ----------
    spec : specification of the endpoint.
    """

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec

    def send(self, message: PlaybackMessage) -> None:
        """Send a message.

        Raises
        ------
        UnplayableError : the message cannot be played.
        QueueFullError : the queue has no room now.
        Errors of the publisher, writer or queue pass through.
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
        """Wait up to `timeout` seconds for a subscriber. Return True if a subscriber exists.

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

    Attributes
    ----------
    data : payload without values that differ in each run, such as times.
    extra : other compared properties by name: a board's key, a priority.
    """

    data: bytes
    extra: tuple[str, Any]


def _compare_data_and_key(data: bytes, key: str) -> ComparedMessage:
    return ComparedMessage(data, ("key", key))


@dataclass(frozen=True, slots=True)
class KindPlayback:
    """Functions that play recorded messages of a kind.

    Attributes
    ----------
    open_writer : takes an `EndpointSpec`, a `PlaybackTarget`, and objects that the writers of one player share; opens
        the endpoint, and creates it if necessary. Raises `UnplayableError` if that is impossible.
    is_carried_by_zmq : True: the ZMQ backend has endpoints of this kind.
    make_valid_name : takes a recorded name; returns it without parts that are invalid for this kind.
    validate_name : takes a new name; returns it, or raises `InvalidValueError`. None: as `Kind.validate_name`.
    find_announced_endpoint : takes a recorded name; returns the endpoint whose writer publishes it automatically, or
        None.
    open_sample : returns a `MessageSample`. None: no sample is needed.
    played_first_byte : first byte of all messages that are sent again; other messages are events, and are omitted.
        None: all messages are sent.
    compute_state_key : for kinds that keep values: takes a message; returns the changed element, in addition to the
        key.
    create_endpoint : takes the arguments of a simulation, and creates an endpoint without a publisher. None: a writer
        creates it.
    encode_sent : takes data, priority, number and time of a sent message; returns its recorded form and schema. None:
        the recorded form is the sent message.
    extract_comparable : takes a recorded message and its key; returns the compared properties, or None for a message
        that is not compared.
    """

    open_writer: Callable[[EndpointSpec, PlaybackTarget, dict[str, Any]], EndpointWriter]
    is_carried_by_zmq: bool = False
    make_valid_name: Callable[[str], str] = str
    validate_name: Callable[[str], str] | None = None
    find_announced_endpoint: Callable[[str], str | None] | None = None
    open_sample: Callable[[], MessageSample] | None = None
    played_first_byte: int | None = None
    compute_state_key: Callable[[bytes], bytes] = bytes
    create_endpoint: Callable[[EndpointSpec], None] | None = None
    encode_sent: Callable[[bytes, int, int, int], tuple[bytes, Schema]] | None = None
    extract_comparable: Callable[[bytes, str], ComparedMessage | None] = _compare_data_and_key

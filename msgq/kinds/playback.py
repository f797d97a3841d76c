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
    """An endpoint that is to be played to.

    Attributes
    ----------
    endpoint : its name, with the mark of its kind.
    kind : as `MessageSource` has it.
    schema : of the messages in the recording.
    options : what it needs to be made anew, as the recording says; anybody may have written them.
    max_message_bytes : bytes of the largest message; 0: unknown.
    tracked : its topic was tracked.
    publishers : of a channel: the names of those who published.
    keys : of a board.
    sample_message : of frames: the first picture, which says how a stream's are laid out.
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

    def get_positive_option(self, option: str) -> int | None:
        """Return an option that is a positive number; None: there is none of this name."""
        value = self.options.get(option)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def get_flag_option(self, option: str) -> bool | None:
        """Return an option that is true or false; None: there is none of this name."""
        value = self.options.get(option)
        return value if isinstance(value, bool) else None


class PlaybackTarget(NamedTuple):
    """Where endpoints are to be.

    Attributes
    ----------
    backend : "msgq", "zmq" or "fake".
    prefix : of the endpoints; "" for none.
    segment_size : bytes of new rings; 0: what is needed.
    take_over : also play where a living process publishes, which ends its publishing.
    """

    backend: str
    prefix: str = ""
    segment_size: int = 0
    take_over: bool = False

    @property
    def backend_module(self) -> ModuleType:
        """The backend's."""
        return backends.load_backend(self.backend)

    def time_ns(self) -> int:
        """Return the time there."""
        return current_bus().clock.time_ns() if self.backend == "fake" else clock.time_ns()

    def compute_origin_time(self, age_ns: int | None) -> int:
        """Return when that came about which is so old now; 0: nobody knows."""
        return 0 if age_ns is None else max(1, self.time_ns() - age_ns)


class UnplayableError(Exception):
    """An endpoint, or a message of it, cannot be played; the text says why. For whoever plays, who goes on."""


class EndpointWriter:
    """Sends to one endpoint. One thread at a time.

    Attributes
    ----------
    spec : what it was made for.
    """

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec

    def send(self, message: PlaybackMessage) -> None:
        """Send a message.

        Raises
        ------
        UnplayableError : it cannot be played. QueueFullError: there is no room for it now.
        What the publisher, writer or queue raises.
        """
        raise NotImplementedError

    def restore(self, messages: Iterable[PlaybackMessage]) -> None:
        """Let the state be what these messages leave, the last of each element or key, oldest first.

        Only records have a state: elsewhere nothing is done.
        """

    @property
    def ring_socket(self) -> PubSocket | None:
        """The socket to which many messages of equal size can be given at once; None: there is none."""
        return None

    def wait_for_readers(self, timeout: float) -> bool:
        """Wait so many seconds for a subscriber; tell whether one is there.

        True at once where nobody has to be there in time: what is written to records stays, and so does what is sent
        to a queue.
        """
        return True

    def close(self) -> None:
        """Send nothing more. Twice does nothing."""
        raise NotImplementedError


def make_mismatch_error(error: SegmentError, endpoint: str) -> SegmentError:
    """Return the error for an endpoint that is there with another configuration than the recording's."""
    difference = str(error).removeprefix(f"{error.endpoint!r}: ").partition(";")[0]
    advice = "choose another prefix, remap the endpoint, or remove the existing one"
    return type(error)(f"{difference}: the endpoint differs from the recording; {advice}", endpoint)


def make_usable_schema(schema: Schema | None) -> Schema | None:
    """Return a schema that an endpoint can have: those of foreign files may be too large, or have no name."""
    try:
        return schema and Schema(schema.name, schema.encoding, schema.data, schema_encoding=schema.schema_encoding)
    except ValueError:
        return None


class MessageSample(Protocol):
    """Looks at the first messages of an endpoint of a recording, before the endpoint is opened."""

    data: bytes
    refusal_reason: str

    def add(self, data: bytes) -> bool:
        """Take a message; return whether this is enough.

        `data` is then what `EndpointSpec.sample_message` needs, and `refusal_reason` why the endpoint cannot be played
        ("": it can be).
        """


class ComparedMessage(NamedTuple):
    """The part of a message that a comparison of two runs compares.

    Attributes
    ----------
    data : without what differs from run to run, as times.
    extra : what else must be the same, by name: a board's key, a priority.
    """

    data: bytes
    extra: tuple[str, Any]


def _compare_data_and_key(data: bytes, key: str) -> ComparedMessage:
    return ComparedMessage(data, ("key", key))


@dataclass(frozen=True, slots=True)
class KindPlayback:
    """How recorded messages of a kind are sent again.

    Attributes
    ----------
    open_writer : takes what to open, where, and objects that writers of one player share, by name; opens the endpoint,
        and creates it if there is none. Raises `UnplayableError` if it cannot be played there.
    is_carried_by_zmq : the ZMQ backend has endpoints of this kind.
    make_valid_name : takes a name of a recording; returns it without what no endpoint of this kind can have in its
        name.
    validate_name : takes a new name; returns it, or raises `InvalidValueError`. None: as `Kind.validate_name`.
    find_announced_endpoint : takes a name in a recording; returns the endpoint that its writer publishes by itself, or
        None.
    open_sample : returns what looks at the first messages of an endpoint. None: no message needs to be seen.
    played_first_byte : the first byte of all messages that are sent again; others say what happened, and are left out.
        None: all are sent.
    compute_state_key : of kinds that keep values: takes a message; returns which element it changes (beside the key).
    create_endpoint : takes what a simulation needs, and creates it without staying its publisher. None: a writer does.
    encode_sent : takes the data, priority, number and time of a sent message, and returns it as recordings have it, and
        its schema. None: a recording has what was sent.
    extract_comparable : takes a recorded message and its key; returns what a comparison compares, None: nothing.
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

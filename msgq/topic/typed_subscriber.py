"""Subscribers that decode their messages by the schema of the topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from msgq.common import naming
from msgq.common.schema import Schema
from msgq.common.stats.topic import Tracked
from msgq.common.texts import format_count_noun
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.schemas import Schemas
from msgq.errors import IpcError, StateError, UndecodableMessageError
from msgq.impl.base.argument_checks import check_limit, parse_receive_flags
from msgq.impl.ring import core as ring
from msgq.impl.sockets.pyzmq_names import make_again_error
from msgq.impl.sources import SchemaReader
from msgq.topic.typed_publisher import resolve_schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.impl.ring import SubSocket
else:
    SubSocket = object

_BATCH_MESSAGES_MAX = 100_000  # messages of one `receive_many`: it ends there, however fast they arrive


class TypedSubscriber(SubSocket):
    """A subscriber of `sub_sock(decoded=)` that decodes its messages. In all other respects a `SubSocket`.

    Each message is decoded by the schema of its publisher, as in `LogReader.decoded` and `msgq echo`:

    - "struct": a read-only NumPy record in the memory of the received message; a message with several records is an
      array;
    - "json", "msgpack", "cbor": any value;
    - "protobuf": a message of the package `protobuf`;
    - "cdr", "ros1", "flatbuffer", "capnproto": a dict.

    A message that cannot be decoded raises `UndecodableMessageError`, which has the bytes of the message. The next call
    continues with the next message. Decoded values may be None, such as null of JSON: `receive` also returns None after
    a time-out, but `recv` raises `Again`.

    `receive_into`, `recv_into` and `receive_array` do not decode.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _decoder: _MessageDecoder

    def connect(self, *arguments: Any, **options: Any) -> None:
        """Subscribe, as `SubSocket.connect`."""
        super().connect(*arguments, **options)
        self._decoder.begin_connection(self)

    @property
    def undecoded(self) -> int:
        """Number of messages since `connect` that could not be decoded."""
        return self._decoder.undecoded

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> Any:
        """Receive and decode the next message.

        Args:
            non_blocking: as in `SubSocket.receive`.
            timeout: as in `SubSocket.receive`.

        Returns:
            The value, or None after the time-out.

        Raises:
            UndecodableMessageError: the message cannot be decoded.
            IpcError: as `SubSocket.receive`.
        """
        receive = super().receive if timeout is None else partial(super().receive, timeout=timeout)
        return self._decoder.take(self) if self._decoder.fetch(receive, non_blocking) else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._decoder.fetch(super().receive, False):
            raise StopIteration
        return self._decoder.take(self)

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Receive the next message of a tracked topic, with the decoded value as `data`.

        Args:
            non_blocking: as in `SubSocket.receive_tracked`.

        Raises:
            StateError: a signal handler interrupted `receive_many` or `receive`, which has left a value without times.
            Exception: as `receive`, and as `SubSocket.receive_tracked`.
        """
        if not self._decoder.fetch(super().receive_tracked, non_blocking):
            return None
        message = self._decoder.fetched
        if not isinstance(message, Tracked):
            text = "has values of an interrupted call, which have no times; take them with receive_many() first"
            raise StateError(text, self.endpoint)
        return message._replace(data=self._decoder.take(self))

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[Any]:
        """Receive and decode the waiting messages, oldest first.

        A message that cannot be decoded is an `Undecoded` in the list, because an error would lose the other messages.
        The list may continue after lost messages. If a signal handler raises, as that of Ctrl-C does, the next call of
        any method that decodes returns the values that this call has decoded. A poll does not count these values.

        Args:
            limit: maximum number of messages; None: all waiting messages, up to 100,000.
            wait_for_one: as in `SubSocket.receive_many`.

        Raises:
            InvalidTypeError: `limit` is not a whole number.
            InvalidValueError: `limit` is negative.
        """
        most = _BATCH_MESSAGES_MAX if limit is None else check_limit(limit, self.endpoint)
        if most == 0:
            return super().receive_many(0)  # an empty list, or the error of a closed subscriber
        return self._decoder.take_many(self, super().receive_many, most, wait_for_one)

    def recv(self, flags: int = 0, copy: bool = True) -> Any:
        """Receive and decode the next message (compatibility: pyzmq's name for `receive`).

        Args:
            flags: 0 or NOBLOCK.
            copy: ignored (compatibility: pyzmq).

        Raises:
            Again: no message arrived before the time-out.
            UndecodableMessageError: the message cannot be decoded.
        """
        if not self._decoder.fetch(super().receive, parse_receive_flags(flags, self.endpoint)):
            raise make_again_error(self.endpoint)
        return self._decoder.take(self)

    async def arecv(self) -> Any:
        """Do the same as `areceive` (compatibility: pyzmq's name)."""
        from msgq.impl.base import event_loop  # late: it imports asyncio

        while not self._decoder.fetch(super().receive, True):
            await event_loop.wait_readable_async([self])
        return self._decoder.take(self)

    async def __anext__(self) -> Any:
        return await self.arecv()


@cache
def _derive_typed_class(backend: ModuleType) -> type[Any]:
    """Return the typed subscriber of a backend. A class of its own keeps `receive` of other subscribers fast."""
    bases = TypedSubscriber, backend.SubSocket
    return type("TypedSubscriber", bases, {"__slots__": ("_decoder",), "__module__": __name__})


def make_typed_subscriber(backend: ModuleType, endpoint: str | bytes, decoded: bool | Schema | npt.DTypeLike) -> Any:
    """Return a typed subscriber that is not connected; see `sub_sock`.

    Raises:
        StateError: the backend carries no schemas, and `decoded` is True.
        InvalidValueError, RecordTypeError: as `sub_sock`.
    """
    name = naming.validate_endpoint_name(endpoint)
    fallback = None if isinstance(decoded, bool) else resolve_schema(decoded, name)
    carries_schemas = issubclass(backend.SubSocket, ring.SubSocket)
    if fallback is None and not carries_schemas:
        text = "decoded=True needs the schema of the publisher, which this backend does not carry"
        raise StateError(f"{text}; give the schema itself: decoded=msgq.Schema(...)", name)
    socket = _derive_typed_class(backend)()
    socket._decoder = _MessageDecoder(name, fallback, carries_schemas)
    return socket


class _MessageDecoder:
    """Decodes the messages of one subscriber, each by its schema.

    A signal handler may raise at the end of each call. Therefore C code stores a received message, and the message
    stays stored until its value is stored or returned. Between these two steps, no function is called.

    Attributes:
        undecoded: number of messages of the connection that could not be decoded.
        kept: values of an interrupted `receive_many`, which the next calls return.
    """

    def __init__(self, endpoint: str, fallback: Schema | None, carries_schemas: bool) -> None:
        """Create the decoder.

        Args:
            endpoint: name of the topic.
            fallback: schema for messages without a schema; None: such messages cannot be decoded.
            carries_schemas: True: the backend carries the schemas of publishers.
        """
        self._endpoint, self._carries_schemas = endpoint, carries_schemas
        self._user_schemas = Schemas({} if fallback is None else {endpoint: fallback})
        self._payload_decoder = PayloadDecoder()
        self._reader: SchemaReader | None = None
        self._decoded = self.undecoded = 0
        self._received: list[Any] = []  # the message to decode next, and none after a call that was not interrupted
        self.kept: list[Any] = []

    def begin_connection(self, socket: SubSocket) -> None:
        """Forget the previous connection, and read the schema of the waiting messages."""
        self._announced: Schema | None = None
        self._schema = self._user_schemas.of(self._endpoint, None)
        self._decoded = self.undecoded = 0
        self._received, self.kept = [], []
        if self._carries_schemas:
            self._reader = SchemaReader()
            self._reader.read_next(socket)

    @property
    def fetched(self) -> Any:
        """The next value or message: bytes, or a message with its times."""
        return self.kept[0] if self.kept else self._received[0]

    def fetch(self, receive: Callable[[bool], Any], non_blocking: bool) -> bool:
        """Receive a message, unless an interrupted call has left one. Return False after the time-out."""
        if self.kept or self._received:
            return True
        self._received.extend(map(receive, (non_blocking,)))
        if self._received[0] is None:
            del self._received[0]
        return bool(self._received)

    def take(self, socket: SubSocket) -> Any:
        """Return the value of the fetched message.

        Raises:
            UndecodableMessageError: decoding fails.
        """
        if self.kept:
            value = self.kept[0]
            del self.kept[0]
        else:
            value = self._decode_received(socket)
            del self._received[0]
        if isinstance(value, Undecoded):
            raise self._undecodable_error(value)
        return value

    def take_many(self, socket: SubSocket, receive_many: Any, most: int, wait_for_one: bool) -> list[Any]:
        """Return the values of the waiting messages; a message that cannot be decoded is an `Undecoded`."""
        values = self.kept
        try:
            # One by one, because only the last received message has a known position, and thus a known schema.
            while len(values) < most:
                waits = wait_for_one and not values
                if not self._received:
                    self._received.extend(chain.from_iterable(map(partial(receive_many, 1), (waits,))))
                if not self._received:
                    break
                value = self._decode_received(socket)
                values += (value,)
                del self._received[0]
        except IpcError:
            if not values:  # with values, the next call finds the error again
                raise
        self.kept = values[most:]
        return values[:most]

    def _undecodable_error(self, value: Undecoded) -> UndecodableMessageError:
        received = format_count_noun(self._decoded + self.undecoded, "received message")
        text = f"message cannot be decoded, {self.undecoded} of {received}: {value.reason}"
        error = UndecodableMessageError(text, self._endpoint)
        error.data = value.data
        return error

    def _decode_received(self, socket: SubSocket) -> Any:
        """Return the value of the message that the subscriber received last; `Undecoded` if decoding fails."""
        message = self._received[0]
        value = self._decode_payload(socket, message.data if isinstance(message, Tracked) else message)
        if isinstance(value, Undecoded):
            self.undecoded += 1
        else:
            self._decoded += 1
        return value

    def _decode_payload(self, socket: SubSocket, data: bytes) -> Any:
        if self._reader is not None:
            announced = self._reader.read_received(socket)
            if announced is not self._announced:
                self._announced, self._schema = announced, self._user_schemas.of(self._endpoint, announced)
            if self._reader.is_replaced:
                return Undecoded(data, "its schema was replaced before the message was received")
        if self._schema is None or not self._schema.encoding:
            return Undecoded(data, "the topic has no schema; give pub_sock a schema, or sub_sock decoded=SCHEMA")
        return self._payload_decoder.decode_payload(self._schema, data)

"""Subscribers that decode their messages by the schema of the topic."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from msgq.common import naming
from msgq.common.schema import Schema
from msgq.common.stats.topic import Tracked
from msgq.common.texts import format_count_noun
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.schemas import Schemas
from msgq.errors import IpcError, StateError, UndecodableMessageError
from msgq.impl.base.argument_checks import NOBLOCK
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
        _decoder: MessageDecoder

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
        data = super().receive(non_blocking, timeout=timeout)
        return None if data is None else self._decoder.decode_or_raise(self, data)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        data = super().receive()
        if data is None:
            raise StopIteration
        return self._decoder.decode_or_raise(self, data)

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Receive the next message of a tracked topic, with the decoded value as `data`.

        Args:
            non_blocking: as in `SubSocket.receive_tracked`.

        Raises:
            Exception: as `receive`, and as `SubSocket.receive_tracked`.
        """
        message = super().receive_tracked(non_blocking)
        return None if message is None else message._replace(data=self._decoder.decode_or_raise(self, message.data))

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[Any]:
        """Receive and decode the waiting messages, oldest first.

        A message that cannot be decoded is an `Undecoded` in the list, because an error would lose the other messages.
        The list may continue after lost messages. If a signal handler raises, as that of Ctrl-C does, the next call
        returns the values that this call has decoded.

        Args:
            limit: maximum number of messages; None: all waiting messages, up to 100,000.
            wait_for_one: as in `SubSocket.receive_many`.

        Raises:
            InvalidValueError: `limit` is negative.
        """
        most = _BATCH_MESSAGES_MAX if limit is None else limit
        if most <= 0:
            return super().receive_many(most)  # an empty list, or the error
        values = self._decoder.kept
        try:
            # One by one, because only the last received message has a known position, and thus a known schema.
            while len(values) < most and (batch := super().receive_many(1, wait_for_one and not values)):
                values.append(self._decoder.decode(self, batch[0]))
        except IpcError:
            if not values:  # with values, the next call finds the error again
                raise
        self._decoder.kept = values[most:]
        return values[:most]

    def recv(self, flags: int = 0, copy: bool = True) -> Any:
        """Receive and decode the next message (compatibility: pyzmq's name for `receive`).

        Args:
            flags: 0 or NOBLOCK.
            copy: ignored (compatibility: pyzmq).

        Raises:
            Again: no message arrived before the time-out.
            UndecodableMessageError: the message cannot be decoded.
        """
        data = super().receive(bool(flags & NOBLOCK))
        if data is None:
            raise make_again_error(self.endpoint)
        return self._decoder.decode_or_raise(self, data)

    async def arecv(self) -> Any:
        """Do the same as `areceive` (compatibility: pyzmq's name)."""
        from msgq.impl.base import event_loop  # late: it imports asyncio

        while (data := super().receive(True)) is None:
            await event_loop.wait_readable_async([self])
        return self._decoder.decode_or_raise(self, data)

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
    socket._decoder = MessageDecoder(name, fallback, carries_schemas)
    return socket


class MessageDecoder:
    """Decodes the messages of one subscriber, each by its schema.

    Attributes:
        undecoded: number of messages of the connection that could not be decoded.
        kept: values of an interrupted `receive_many`, which the next one returns.
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
        self.kept: list[Any] = []

    def begin_connection(self, socket: SubSocket) -> None:
        """Forget the previous connection, and read the schema of the waiting messages."""
        self._announced: Schema | None = None
        self._schema = self._user_schemas.of(self._endpoint, None)
        self._decoded = self.undecoded = 0
        self.kept = []
        if self._carries_schemas:
            self._reader = SchemaReader()
            self._reader.read_next(socket)

    def decode(self, socket: SubSocket, data: bytes) -> Any:
        """Return the value of the message that a subscriber received last; `Undecoded` if decoding fails."""
        value = self._decode_payload(socket, data)
        if isinstance(value, Undecoded):
            self.undecoded += 1
        else:
            self._decoded += 1
        return value

    def decode_or_raise(self, socket: SubSocket, data: bytes) -> Any:
        """Do the same as `decode`, but raise `UndecodableMessageError` if decoding fails."""
        value = self.decode(socket, data)
        if not isinstance(value, Undecoded):
            return value
        received = format_count_noun(self._decoded + self.undecoded, "received message")
        text = f"message cannot be decoded, {self.undecoded} of {received}: {value.reason}"
        error = UndecodableMessageError(text, self._endpoint)
        error.data = data
        raise error

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

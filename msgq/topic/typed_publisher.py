"""Publishers that check or convert their messages by the schema of the topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from msgq.common import naming
from msgq.common.schema import SCHEMA_NAME_BYTES_MAX, Schema
from msgq.common.texts import format_count_noun, suggest_name
from msgq.decoding.payload_decoder import DECODABLE_ENCODINGS, SELF_DESCRIBING_ENCODINGS, find_schema_error
from msgq.errors import InvalidTypeError, InvalidValueError, MessageSizeError, RecordTypeError
from msgq.impl import backend as backends
from msgq.impl.records.arrays import convert_element_values, convert_records

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from msgq.impl.ring import PubSocket
else:
    PubSocket = object

_BYTES_TYPES = (bytes, bytearray, memoryview)


class MessageEncoder(Protocol):
    """Checks and converts the messages of one publisher."""

    def encode_message(self, message: Any) -> Any:
        """Return a message as an object with contiguous bytes."""

    def encode_messages(self, messages: Any) -> Any:
        """Return the argument for `send_many` of a socket."""

    def check_size(self, size: int) -> None:
        """Raise `MessageSizeError` if no message has this size in bytes."""


class TypedPublisher(PubSocket):
    """A publisher of `pub_sock(schema=)` that checks and converts its messages. In all other respects a `PubSocket`.

    Messages of the encoding "struct":

    - a NumPy scalar, or an array of one element, of the schema's dtype;
    - a tuple with a value for each field, or a mapping from field names to values;
    - a value, if the dtype has no fields. An integer field refuses floats and texts;
    - bytes, or another buffer, of exactly the size of the dtype.

    Messages of the encoding "json": bytes, which are sent unchanged, or any value that Python's `json` encodes.

    `reserve` and `loan` accept only the size of the dtype. Messages of other encodings are bytes, as in `PubSocket`.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _encoder: MessageEncoder

    def send(self, data: Any, /, flags: int = 0, copy: bool = True, *, origin_time: int = 0) -> None:
        """Publish one message.

        Args:
            data: a message, as described for the class.
            flags: as in `PubSocket.send`.
            copy: as in `PubSocket.send`.
            origin_time: as in `PubSocket.send`.

        Raises:
            MessageSizeError: the bytes have another size than the dtype.
            RecordTypeError: the value has another type or dtype, or lacks a field.
            InvalidValueError, InvalidTypeError: the value cannot be converted.
            IpcError: as `PubSocket.send`. If `send` raises, the message was not sent.
        """
        super().send(self._encoder.encode_message(data), flags, copy, origin_time=origin_time)

    def send_many(self, messages: Iterable[Any] | npt.NDArray[Any], *, origin_time: int = 0) -> int:
        """Publish several messages, and return their number.

        Args:
            messages: an iterable of messages. For the encoding "struct" also an array of the dtype, with one dimension.
            origin_time: as in `PubSocket.send_many`.

        Raises:
            Exception: as `send`. Messages before the error may be published.
        """
        return super().send_many(self._encoder.encode_messages(messages), origin_time=origin_time)

    def reserve(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Write one message in place, as `PubSocket.reserve`.

        Raises:
            MessageSizeError: the size is not the size of the dtype.
        """
        self._encoder.check_size(size)
        return super().reserve(size, origin_time=origin_time)

    def loan(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Do the same as `reserve`."""
        return self.reserve(size, origin_time=origin_time)


@cache
def _derive_typed_class(backend: ModuleType) -> type[Any]:
    """Return the typed publisher of a backend. A class of its own keeps `send` of other publishers fast."""
    bases = TypedPublisher, backend.PubSocket
    return type("TypedPublisher", bases, {"__slots__": ("_encoder",), "__module__": __name__})


def connect_typed_publisher(
    backend: ModuleType,
    endpoint: str | bytes,
    segment_size: int,
    schema: Schema | npt.DTypeLike,
    options: Mapping[str, Any],
) -> PubSocket:
    """Create and connect a publisher with a schema; see `pub_sock`."""
    name = naming.validate_endpoint_name(endpoint)
    announced = resolve_schema(schema, name)
    encoder = _make_message_encoder(announced, name)
    socket: Any = backend.PubSocket() if encoder is None else _derive_typed_class(backend)()
    if encoder is not None:
        socket._encoder = encoder
    socket.connect(backends.context, name, segment_size, schema=announced, **options)
    publisher: PubSocket = socket
    return publisher


def resolve_schema(schema: Schema | npt.DTypeLike, endpoint: str) -> Schema:
    """Return a schema that can be decoded, or the schema of a dtype.

    Raises:
        InvalidValueError: the encoding is unknown, or the data is missing or invalid.
        RecordTypeError: the value is neither a schema nor the dtype of a record.
    """
    if not isinstance(schema, Schema):
        _check_schema_type(schema, endpoint)
        return Schema.of(schema, endpoint.encode()[:SCHEMA_NAME_BYTES_MAX].decode(errors="ignore") or "Record")
    if schema.encoding not in DECODABLE_ENCODINGS:
        encodings = sorted(DECODABLE_ENCODINGS)
        near = suggest_name(schema.encoding, encodings) or f"; known encodings are {', '.join(encodings)}"
        text = f"schema {schema.name!r} has the unknown encoding {schema.encoding!r}"
        raise InvalidValueError(f"{text}; PubSocket.connect(schema=) announces any encoding{near}", endpoint)
    if not schema.data and schema.encoding not in SELF_DESCRIBING_ENCODINGS:
        text = f"schema {schema.name!r} has no data; messages of the encoding {schema.encoding!r} need a definition"
        raise InvalidValueError(text, endpoint)
    if reason := find_schema_error(schema):
        raise InvalidValueError(f"schema {schema.name!r} is invalid: {reason}", endpoint)
    return schema


def _check_schema_type(schema: object, endpoint: str) -> None:
    """Refuse values that are often given instead of a schema or a dtype, and that NumPy would refuse without a cure.

    Raises:
        RecordTypeError: the value is the name of an encoding, or a mapping of field names to types.
    """
    if isinstance(schema, str) and schema in DECODABLE_ENCODINGS:
        needs_data = schema not in SELF_DESCRIBING_ENCODINGS
        call = "Schema.json(name)" if schema == "json" else f"Schema(name, {schema!r}{', data' if needs_data else ''})"
        raise RecordTypeError(f"schema is {schema!r}, the name of an encoding; give msgq.{call}, or a dtype", endpoint)
    is_dtype = isinstance(schema, Mapping) and ("names" in schema or {type(it) for it in schema.values()} == {tuple})
    if isinstance(schema, Mapping) and not is_dtype:
        fields = ", ".join(f"({name!r}, {kind!r})" for name, kind in schema.items())
        raise RecordTypeError(f"schema is a mapping; give a list of fields: [{fields:.120}]", endpoint)


def _make_message_encoder(schema: Schema, endpoint: str) -> MessageEncoder | None:
    """Return the encoder of a schema; None: messages are sent as bytes."""
    if schema.encoding == "struct":
        return RecordEncoder(schema, endpoint)
    return JsonEncoder(endpoint) if schema.encoding == "json" else None


class RecordEncoder:
    """Converts messages to records of one dtype. Suitable objects are returned without a copy."""

    def __init__(self, schema: Schema, endpoint: str) -> None:
        self._dtype, self._endpoint = schema.dtype, endpoint
        self._size, self._field_names = self._dtype.itemsize, self._dtype.names

    def encode_message(self, message: Any) -> Any:
        """Return a message as an object with the bytes of one record."""
        if isinstance(message, _BYTES_TYPES):
            self.check_size(message.nbytes if isinstance(message, memoryview) else len(message))
            return message
        dtype = getattr(message, "dtype", None)
        if dtype is not None and dtype == self._dtype and message.size == 1:
            return message
        if dtype is None and self._field_names is not None and not isinstance(message, (tuple, Mapping)):
            return self._check_buffer(message)
        return convert_element_values(message, self._dtype, 1, self._endpoint)

    def encode_messages(self, messages: Any) -> Any:
        """Return an array of records, or an iterable of encoded messages."""
        if isinstance(messages, (list, tuple)):
            return [self.encode_message(message) for message in messages]
        if getattr(messages, "ndim", 0):  # one row for each message, because one dimension of bytes is one message
            return convert_records(messages, self._dtype, self._endpoint).view(f"({self._size},)u1")
        return map(self.encode_message, _check_message_sequence(messages, self._endpoint))

    def check_size(self, size: int) -> None:
        """Raise an error if the size differs from the size of a record."""
        if size != self._size:
            text = f"message has {format_count_noun(size, 'byte')}, but a record has {self._size} ({self._dtype})"
            text += "; send one whole record"
            raise MessageSizeError(text, self._endpoint)

    def _check_buffer(self, message: Any) -> Any:
        """Return another object with bytes of the right size, such as a structure of ctypes."""
        try:
            self.check_size(memoryview(message).nbytes)
        except TypeError:
            text = f"{type(message).__name__} is not a record; give a tuple or a mapping with the fields"
            raise RecordTypeError(f"{text} {', '.join(self._field_names or ())}", self._endpoint) from None
        return message


class JsonEncoder:
    """Converts messages to JSON. Bytes are JSON already."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def encode_message(self, message: Any) -> Any:
        """Return a message as bytes of JSON."""
        if isinstance(message, _BYTES_TYPES):
            return message
        try:
            return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except TypeError as error:
            raise InvalidTypeError(
                f"message cannot be encoded as JSON: {error}; convert it first", self._endpoint
            ) from None
        except (ValueError, RecursionError) as error:  # NaN, a reference to itself, half of a surrogate pair
            text = f"message has no form in JSON: {error}; replace the value, for example NaN by None"
            raise InvalidValueError(text, self._endpoint) from None

    def encode_messages(self, messages: Any) -> Any:
        """Return an iterable of encoded messages."""
        several = _check_message_sequence(messages, self._endpoint)
        encoded = map(self.encode_message, several)
        return list(encoded) if isinstance(several, (list, tuple)) else encoded

    def check_size(self, size: int) -> None:
        """Accept any size."""


def _check_message_sequence(messages: Any, endpoint: str) -> Iterable[Any]:
    """Return an iterable of messages. A single message raises `InvalidTypeError`."""
    is_single = isinstance(messages, (*_BYTES_TYPES, str, Mapping)) or hasattr(messages, "dtype")
    if is_single or not isinstance(messages, Iterable):
        text = f"send_many got one {type(messages).__name__}; give a list of messages, or use send"
        raise InvalidTypeError(text, endpoint)
    return messages

"""Schemas: descriptions of an endpoint's messages. Tools use them to decode messages."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

SCHEMA_NAME_BYTES_MAX = 192
SCHEMA_ENCODING_BYTES_MAX = 48
SCHEMA_DATA_BYTES_MAX = 46608
FINGERPRINT_BYTES_MAX = 64
VERSION_MAX = 2**32 - 1
#: Encoding of a schema's text, by the encoding of messages, if the two have different names.
_SCHEMA_ENCODINGS = {"json": "jsonschema", "cdr": "ros2msg", "ros1": "ros1msg"}
_ENCODING_SEPARATOR = ";"  # separator of two encodings in one text


@dataclass(frozen=True, slots=True)
class Schema:
    """Description of the messages of an endpoint.

    Channels keep `identity`, `layout` and `version`. Topics have no room for these, so a schema read from a topic has
    the defaults.

    Attributes:
        name: name of the message type, at most 192 bytes of UTF-8.
        encoding: encoding of the messages ("json", "protobuf", "struct", "cdr", ...). `encoding` and `schema_encoding`
            together have at most 48 bytes.
        data: definition of the type, in the format of `schema_encoding`; at most 46608 bytes.
        identity: fingerprint of the type, at most 64 bytes. Equal fingerprints mean the same type. Default: a hash of
            the name.
        layout: fingerprint of the memory layout, at most 64 bytes. Two builds of one type may differ. Default: a hash
            of encoding and data.
        version: version number of your choice, 0 to 2**32 - 1.
        schema_encoding: format of `data`, if the encoding has several ("ros2msg" or "ros2idl" for "cdr"). Default: the
            format that belongs to `encoding`, mostly the same word.
    """

    name: str
    encoding: str
    data: bytes = b""
    identity: bytes = field(default=b"", repr=False)
    layout: bytes = field(default=b"", repr=False)
    version: int = field(default=0, repr=False)
    schema_encoding: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes(memoryview(self.data)))
        object.__setattr__(self, "schema_encoding", self.schema_encoding or schema_encoding(self.encoding))
        described = self.encodings.encode() + b"\0" + self.data
        object.__setattr__(self, "identity", bytes(self.identity) or _fingerprint_data(self.name.encode()))
        object.__setattr__(self, "layout", bytes(self.layout) or _fingerprint_data(described))
        if not 0 <= self.version <= VERSION_MAX:
            raise ValueError(f"schema version is {self.version}; give 0 to {VERSION_MAX}")
        for attribute, size, most in (
            ("name", _count_text_bytes("name", self.name), SCHEMA_NAME_BYTES_MAX),
            ("encoding", _count_text_bytes("encoding", self.encodings), SCHEMA_ENCODING_BYTES_MAX),
            ("data", len(self.data), SCHEMA_DATA_BYTES_MAX),
            ("identity", len(self.identity), FINGERPRINT_BYTES_MAX),
            ("layout", len(self.layout), FINGERPRINT_BYTES_MAX),
        ):
            if size > most:
                raise ValueError(f"schema {attribute} has {size} bytes; give at most {most}")
        if not self.name:
            raise ValueError("schema name is empty; give a name")
        if _ENCODING_SEPARATOR in self.encoding or _ENCODING_SEPARATOR in self.schema_encoding:
            raise ValueError(f"schema encoding {self.encodings!r} has a {_ENCODING_SEPARATOR!r}; remove this character")

    @classmethod
    def of(cls, dtype: npt.DTypeLike, name: str = "Record") -> Schema:
        """Return the schema of messages with one NumPy record each: ``Schema.of([("x", "f8"), ("y", "f8")], "Point")``.

        Args:
            dtype: dtype of fixed size, without Python objects and pointers.
            name: name of the message type.

        Raises:
            RecordTypeError: the dtype has another form; see `msgq.SeqlockVector`.
            ValueError: the name is empty or too long.
        """
        from msgq.common.dtype_descriptions import describe_dtype, record_dtype

        return cls(name, "struct", describe_dtype(record_dtype(dtype)))

    @classmethod
    def json(cls, name: str, data: bytes = b"") -> Schema:
        """Return the schema of JSON messages.

        Args:
            name: name of the message type.
            data: a JSON Schema as text; empty: the messages have any fields.
        """
        return cls(name, "json", data)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the messages, for the encoding "struct". Other encodings raise `ValueError`."""
        from msgq.common.dtype_descriptions import parse_dtype_description

        if self.encoding != "struct":
            raise ValueError(f"schema {self.name!r} has the encoding {self.encoding!r}; only struct has a dtype")
        return parse_dtype_description(self.data, self.name)

    @property
    def encodings(self) -> str:
        """Both encodings as stored in shared memory: "cdr;ros2idl", or "cdr" if `schema_encoding` has its default."""
        follows = self.schema_encoding == schema_encoding(self.encoding)
        return self.encoding if follows else f"{self.encoding}{_ENCODING_SEPARATOR}{self.schema_encoding}"


class _ForeignSchema(Schema):
    """A schema that exceeds the limits of endpoints, or has no name."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass


def require_schema(schema: object) -> None:
    """Check the type of a schema.

    Raises:
        TypeError: the value is not a `Schema`.
    """
    if not isinstance(schema, Schema):
        text = f"schema is of type {type(schema).__name__}; give a msgq.Schema, such as msgq.Schema.of(dtype)"
        raise TypeError(text)


def schema_of(name: str, encoding: str, data: bytes, definition: str = "") -> Schema:
    """Return a schema of a file, of any size. `definition` is its `schema_encoding`."""
    try:
        return Schema(name, encoding, data, schema_encoding=definition)
    except ValueError:
        return _ForeignSchema(name, encoding, data, schema_encoding=definition or schema_encoding(encoding))


def schema_encoding(encoding: str) -> str:
    """Return the default format of definitions for this encoding of messages."""
    return _SCHEMA_ENCODINGS.get(encoding, encoding)


def message_encoding(schema_encoding: str) -> str:
    """Return the encoding of messages for this format of definitions."""
    messages = {"ros2idl": "cdr"} | {schema: message for message, schema in _SCHEMA_ENCODINGS.items()}
    return messages.get(schema_encoding, schema_encoding)


def split_encoding(encodings: str) -> tuple[str, str]:
    """Split a text of `Schema.encodings` into the encodings of messages and of definitions."""
    messages, _, definition = encodings.partition(_ENCODING_SEPARATOR)
    return messages, definition


def _fingerprint_data(data: bytes) -> bytes:
    import hashlib  # late: it takes 3 ms, and few programs describe messages

    return hashlib.sha256(data).digest()


def _count_text_bytes(field: str, text: str) -> int:
    if "\0" in text:
        raise ValueError(f"schema {field} {text!r} contains a NUL character; remove the character")
    return len(text.encode())


def schema_diff(first: Schema, other: Schema) -> tuple[str, ...]:
    """Return the names of the attributes in which two schemas differ. Empty: the schemas are equal.

    ("identity",) means another type. ("layout",) alone means another build of the same type.
    """
    return tuple(each.name for each in fields(first) if getattr(first, each.name) != getattr(other, each.name))

"""What the messages of an endpoint mean, kept beside the ring for tools that decode them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

NAME_BYTES_MAX = 192
ENCODING_BYTES_MAX = 48
DATA_BYTES_MAX = 46608
FINGERPRINT_BYTES_MAX = 64
VERSION_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema descriptor.

    Attributes
    ----------
    name : what the message is called, at most 192 bytes of UTF-8.
    encoding : how it is written ("json", "protobuf", "struct", ...), at most 48 bytes.
    data : the schema itself, in the form that the encoding uses; at most 46608 bytes.
    identity : a fingerprint of the type, any bytes, at most 64: two programs that agree on it mean the same thing. By
        default it comes from the name.
    layout : a fingerprint of how it lies in memory, as `identity`: two builds of one type may differ in it. By default
        it comes from encoding and data.
    version : any number that the user wants, 0 to 2**32 - 1.

    Channels keep the last three; topics have no room for them, and what is read from a topic has the defaults.
    """

    name: str
    encoding: str
    data: bytes = b""
    identity: bytes = field(default=b"", repr=False)
    layout: bytes = field(default=b"", repr=False)
    version: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes(memoryview(self.data)))
        described = self.encoding.encode() + b"\0" + self.data
        object.__setattr__(self, "identity", bytes(self.identity) or _fingerprint(self.name.encode()))
        object.__setattr__(self, "layout", bytes(self.layout) or _fingerprint(described))
        if not 0 <= self.version <= VERSION_MAX:
            raise ValueError(f"the schema's version is {self.version}; give 0 to {VERSION_MAX}")
        for what, size, most in (
            ("name", _text_bytes("name", self.name), NAME_BYTES_MAX),
            ("encoding", _text_bytes("encoding", self.encoding), ENCODING_BYTES_MAX),
            ("data", len(self.data), DATA_BYTES_MAX),
            ("identity", len(self.identity), FINGERPRINT_BYTES_MAX),
            ("layout", len(self.layout), FINGERPRINT_BYTES_MAX),
        ):
            if size > most:
                raise ValueError(f"the schema's {what} has {size} bytes; at most {most} fit")
        if not self.name:
            raise ValueError("a schema needs a name")


def _fingerprint(data: bytes) -> bytes:
    import hashlib  # late: it takes 3 ms, and few programs describe messages

    return hashlib.sha256(data).digest()


def _text_bytes(what: str, text: str) -> int:
    if "\0" in text:
        raise ValueError(f"the schema's {what} {text!r} has a NUL in it")
    return len(text.encode())


def schema_diff(one: Schema, other: Schema) -> tuple[str, ...]:
    """Return in what two schemas differ, by the names of attributes: ("identity",) is another type, and with "layout"
    alone it is the same type of another build. Empty: they are equal.
    """
    return tuple(each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name))

"""What the messages of an endpoint mean, kept beside the ring for tools that decode them."""

from __future__ import annotations

from dataclasses import dataclass

NAME_BYTES_MAX = 192
ENCODING_BYTES_MAX = 48
DATA_BYTES_MAX = 46608


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema descriptor.

    Attributes
    ----------
    name : what the message is called, at most 192 bytes of UTF-8.
    encoding : how it is written ("json", "protobuf", "struct", ...), at most 48 bytes.
    data : the schema itself, in the form that the encoding uses; at most 46608 bytes.
    """

    name: str
    encoding: str
    data: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes(memoryview(self.data)))
        for what, size, most in (
            ("name", _text_bytes("name", self.name), NAME_BYTES_MAX),
            ("encoding", _text_bytes("encoding", self.encoding), ENCODING_BYTES_MAX),
            ("data", len(self.data), DATA_BYTES_MAX),
        ):
            if size > most:
                raise ValueError(f"the schema's {what} has {size} bytes; at most {most} fit")
        if not self.name:
            raise ValueError("a schema needs a name")


def _text_bytes(what: str, text: str) -> int:
    if "\0" in text:
        raise ValueError(f"the schema's {what} {text!r} has a NUL in it")
    return len(text.encode())

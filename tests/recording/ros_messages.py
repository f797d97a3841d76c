"""Messages of ROS, by another hand than what reads them."""

from __future__ import annotations

import struct
from typing import Any

from msgq import Schema
from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType
from msgq.decoding.scalar_types import ScalarType, TextType
from msgq.decoding.struct_definitions import parse_schema_struct

CODES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
FORMATS = dict(zip(CODES, "?bBhHiIqQfd", strict=True))
POINT = Schema("geometry_msgs/msg/Point", "cdr", b"float64 x\nfloat64 y\nuint8[2] flags\nint32[] more")


class Encoder:
    """Writes messages of any definition."""

    def __init__(self, is_cdr: bool, order: str) -> None:
        self.is_cdr, self.order = is_cdr, order
        self.data = b""

    def number(self, code: str, value: Any) -> None:
        form = FORMATS[code]
        if self.is_cdr:
            self.data += bytes(-len(self.data) % struct.calcsize(form))
        self.data += struct.pack(self.order + form, value)

    def put(self, value_type: CdrType, value: Any) -> None:
        match value_type:
            case ScalarType(code=code):
                self.number(code, value)
            case TextType():
                content = value.encode() + (b"\0" if self.is_cdr else b"")
                self.number("u4", len(content))
                self.data += content
            case CdrStruct(fields=fields):
                for name, kind in fields:
                    self.put(kind, value[name])
            case CdrArray(element_type=inner) | CdrSequence(element_type=inner):
                if isinstance(value_type, CdrSequence):
                    self.number("u4", len(value))
                for element in value:
                    self.put(inner, element)

    def message(self, struct: CdrStruct, value: Any) -> bytes:
        self.data = b""
        self.put(struct, value)
        head = (b"\0\1\0\0" if self.order == "<" else b"\0\0\0\0") if self.is_cdr else b""
        return head + self.data


def point(i: int) -> dict[str, Any]:
    return {"x": i / 2, "y": -float(i), "flags": bytes([i % 256, 7]), "more": list(range(i % 3))}


def point_bytes(i: int) -> bytes:
    value = point(i) | {"flags": list(point(i)["flags"])}
    return Encoder(True, "<").message(parse_schema_struct(POINT), value)

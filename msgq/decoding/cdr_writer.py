"""Encodes values as CDR messages that `CdrReader` can read."""

from __future__ import annotations

import struct as layout
from collections.abc import Mapping
from typing import Any

from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType
from msgq.decoding.scalar_types import ScalarType, TextType

_ENCAPSULATION_HEADER = b"\0\1\0\0"  # CDR of version 1, little-endian
_STRUCT_FORMAT_BY_CODE = {
    **{"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"},
    **{"f4": "f", "f8": "d"},
}


def encode_cdr(struct: CdrStruct, value: Mapping[str, Any]) -> bytes:
    """Return a message in little-endian CDR. Arrays and bytes are copied once.

    Args:
        struct: type of the message, with numbers, texts, arrays, sequences and structs.
        value: a value for each field, as from `CdrReader`. For numbers, buffers and sequences are accepted.

    Raises:
        ValueError: the value of a field is missing or does not fit the field.
    """
    message = _CdrWriter()
    try:
        message.write_value(struct, value)
    except (KeyError, TypeError, OverflowError, layout.error) as error:
        raise ValueError(f"value does not fit struct {struct.name!r}: {error!r}") from None
    return b"".join(message.chunks)


class _CdrWriter:
    """Writes one message.

    Attributes:
        chunks: bytes written up to now.
    """

    def __init__(self) -> None:
        self.chunks: list[Any] = [_ENCAPSULATION_HEADER]
        self._position = 0  # alignment counts from behind the first four bytes

    def write_value(self, value_type: CdrType, value: Any) -> None:
        """Write a value."""
        match value_type:
            case ScalarType(enum_names=None):
                self._write_numbers(value_type, [value])
            case CdrStruct():
                for name, kind in value_type.fields:
                    self.write_value(kind, value[name])
            case TextType(is_wide=False):
                data = value.encode() + b"\0"
                self._write_length(len(data))
                self._append_bytes(data)
            case CdrArray() | CdrSequence():
                self._write_elements(value_type, value)
            case _:
                raise ValueError(f"type {type(value_type).__name__} is not supported for writing")

    def _write_elements(self, list_type: CdrArray | CdrSequence, value: Any) -> None:
        data = None
        if isinstance(list_type.element_type, ScalarType) and _supports_buffer_protocol(value):
            data = memoryview(value)
            if data.itemsize != list_type.element_type.size_bytes or not data.c_contiguous:
                raise ValueError(
                    f"array has elements of {data.itemsize} bytes; "
                    f"expected contiguous elements of type {list_type.element_type.code!r}"
                )
        count = len(value) if data is None else data.nbytes // data.itemsize
        if isinstance(list_type, CdrSequence):
            self._write_length(count)
        elif count != list_type.element_count:
            raise ValueError(f"array has {count} elements; expected {list_type.element_count}")
        if data is not None:
            if count:
                self._write_padding(data.itemsize)
            self._append_bytes(data.cast("B"))
        elif isinstance(list_type.element_type, ScalarType):
            self._write_numbers(list_type.element_type, value)
        else:
            for element in value:
                self.write_value(list_type.element_type, element)

    def _write_length(self, length: int) -> None:
        self._write_numbers(ScalarType("u4"), [length])

    def _write_numbers(self, number_type: ScalarType, values: Any) -> None:
        data = layout.pack(f"<{len(values)}{_STRUCT_FORMAT_BY_CODE[number_type.code]}", *values)
        if data:
            self._write_padding(number_type.size_bytes)
        self._append_bytes(data)

    def _write_padding(self, size: int) -> None:
        self._append_bytes(bytes(-self._position % size))

    def _append_bytes(self, data: Any) -> None:
        self.chunks.append(data)
        self._position += len(data)


def _supports_buffer_protocol(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True

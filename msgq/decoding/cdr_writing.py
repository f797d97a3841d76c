"""Values as messages of CDR, by the definition of their struct: what `CdrReader` reads."""

from __future__ import annotations

import struct as layout
from collections.abc import Mapping
from typing import Any

from msgq.decoding.type_model import Array, Number, Sequence, Struct, Text, Type

_ENCAPSULATION_HEADER = b"\0\1\0\0"  # CDR of version 1, little-endian
_STRUCT_FORMATS = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
_STRUCT_FORMATS |= {"f4": "f", "f8": "d"}


def encode_cdr(struct: Struct, value: Mapping[str, Any]) -> bytes:
    """Return a message in little-endian CDR. Arrays and bytes are copied once: into it.

    Parameters
    ----------
    struct : what it is made of: numbers, texts, arrays, sequences and structs.
    value : a value for each field, as `CdrReader` gives them; of numbers in a row anything with a buffer of them, or
        a sequence.

    Raises
    ------
    ValueError : a field lacks its value, or has one that does not fit it.
    """
    message = _CdrWriter()
    try:
        message.put_value(struct, value)
    except (KeyError, TypeError, OverflowError, layout.error) as error:
        raise ValueError(f"it is no {struct.name}: {error!r}") from None
    return b"".join(message.parts)


class _CdrWriter:
    """A message that is being written.

    Attributes
    ----------
    parts : its bytes so far.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = [_ENCAPSULATION_HEADER]
        self._at = 0  # alignment counts from behind the first four bytes

    def put_value(self, value_type: Type, value: Any) -> None:
        """Write a value."""
        match value_type:
            case Number():
                self._put_numbers(value_type, [value])
            case Struct():
                for name, kind in value_type.fields:
                    self.put_value(kind, value[name])
            case Text(wide=False):
                data = value.encode() + b"\0"
                self._put_length(len(data))
                self._append_bytes(data)
            case Array() | Sequence():
                self._put_elements(value_type, value)
            case _:
                raise ValueError(f"a {type(value_type).__name__} is not written")

    def _put_elements(self, list_type: Array | Sequence, value: Any) -> None:
        data = None
        if isinstance(list_type.value_type, Number) and _has_buffer(value):
            data = memoryview(value)
            if data.itemsize != int(list_type.value_type.code[1:]) or not data.c_contiguous:
                raise ValueError(f"elements of {data.itemsize} bytes are no {list_type.value_type.code} in a row")
        count = len(value) if data is None else data.nbytes // data.itemsize
        if isinstance(list_type, Sequence):
            self._put_length(count)
        elif count != list_type.length:
            raise ValueError(f"{count} elements are not {list_type.length}")
        if data is not None:
            if count:
                self._align(data.itemsize)
            self._append_bytes(data.cast("B"))
        elif isinstance(list_type.value_type, Number):
            self._put_numbers(list_type.value_type, value)
        else:
            for element in value:
                self.put_value(list_type.value_type, element)

    def _put_length(self, length: int) -> None:
        self._put_numbers(Number("u4"), [length])

    def _put_numbers(self, number_type: Number, values: Any) -> None:
        data = layout.pack(f"<{len(values)}{_STRUCT_FORMATS[number_type.code]}", *values)
        if data:
            self._align(int(number_type.code[1:]))
        self._append_bytes(data)

    def _align(self, size: int) -> None:
        self._append_bytes(bytes(-self._at % size))

    def _append_bytes(self, data: Any) -> None:
        self.parts.append(data)
        self._at += len(data)


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True

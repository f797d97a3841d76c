"""What a message says, for people and for JSON."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msgq.recording.decode import Decoders, Undecoded, struct_dtype
from msgq.recording.message import Message
from msgq.schema import Schema

_decoders = Decoders()
_INT_BITS_MAX = 2048  # Python writes no more than 640 digits where it is told so


def decode(schema: Schema | None, data: bytes) -> Any:
    """Return what a payload says by its schema, in plain values; an `Undecoded` where it cannot be said.

    Its reason is "" where there is nothing to decode it by.
    """
    value = _decoders.value(Message("", data, 0, 0, 0, 0, schema))
    if value is data:
        return Undecoded(data, "")
    return value if isinstance(value, Undecoded) else shown(value, data)


def shown(value: Any, data: bytes) -> Any:
    """Return a decoded value made of what JSON has, or an `Undecoded` of its payload where that cannot be."""
    try:
        return plain(value)
    except Exception as error:  # what somebody sent may be any object of any library
        return Undecoded(data, f"it cannot be shown: {error or type(error).__name__}")


def plain(value: Any) -> Any:
    """Return a decoded value made of what JSON has; bytes as base64.

    Raises
    ------
    ValueError : an integer is larger than anybody would read.
    """
    if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        raise ValueError(f"it has an integer of {value.bit_length()} bits")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: plain(value[name]) for name in value.dtype.names}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (Sequence, np.ndarray)):
        return [plain(one) for one in value]
    return _message(value)


def _message(value: Any) -> Any:
    """A message of Protocol Buffers; anything else as its text."""
    fields = getattr(value, "ListFields", None)
    return str(value) if fields is None else {field.name: plain(one) for field, one in fields()}


def encode(schema: Schema, value: Any) -> bytes:
    """Return the payload of a struct schema for a JSON object with its fields.

    Raises
    ------
    ValueError : the schema is no dtype, or the value does not fit it.
    """
    dtype = struct_dtype(schema)
    row = np.zeros((), dtype)
    if dtype.names is None:
        row[()] = value
        return row.tobytes()
    unknown = value.keys() - set(dtype.names) if isinstance(value, dict) else {"anything but an object"}
    if unknown:
        raise ValueError(f"{schema.name} has the fields {', '.join(dtype.names)}, not {', '.join(sorted(unknown))}")
    for name, one in value.items():
        row[name] = one
    return row.tobytes()

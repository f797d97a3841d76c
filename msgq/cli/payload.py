"""What a message says, for people and for JSON."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msgq.recording.decode import Decoders, Undecoded, struct_dtype
from msgq.recording.message import Message
from msgq.schema import Schema

_decoders = Decoders()


def decode(schema: Schema | None, data: bytes) -> Any:
    """Return what a payload says by its schema, in plain values; None where it cannot be decoded."""
    value = _decoders.value(Message("", data, 0, 0, 0, 0, schema))
    if isinstance(value, Undecoded) or value is data:
        return None
    return plain(value)


def plain(value: Any) -> Any:
    """Return a decoded value made of what JSON has; bytes as base64."""
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

"""From payloads to values that JSON has, and back."""

from typing import Any

import numpy as np

from msgq.decoding.decoders import Decoders, Undecoded, as_json
from msgq.decoding.json_values import json_text
from msgq.dtypes import struct_dtype
from msgq.impl.records.arrays import STAMPS
from msgq.schema import Schema

_decoders = Decoders()


def decode(schema: Schema | None, data: bytes) -> Any:
    """Return what a payload says by its schema, made of what JSON has; an `Undecoded` where it cannot be said.

    Its reason is "" where there is nothing to decode it by.
    """
    return as_json(_decoders.value(schema, data), data)


def as_text(value: Any) -> str:
    """Return what `decode` or `as_json` gave in one line for people; in hexadecimal what was not decoded, and why."""
    if not isinstance(value, Undecoded):
        return json_text(value, ensure_ascii=False)
    return value.data.hex(" ", -4) + (f"  ({value.reason})" if value.reason else "")


def encode(schema: Schema, value: Any, former: bytes | None = None) -> bytes:
    """Return the payload of a struct schema for a JSON object with its fields.

    Parameters
    ----------
    former : payload that has the fields which `value` leaves out; None: there is none, so `value` has all fields but
        the stamps, which the writer sets.

    Raises
    ------
    ValueError : the schema is no dtype, the value does not fit it, or fields are missing.
    """
    dtype = struct_dtype(schema)
    row = np.zeros((), dtype)
    if dtype.names is None:
        row[()] = value
        return row.tobytes()
    unknown = value.keys() - set(dtype.names) if isinstance(value, dict) else {"anything but an object"}
    if unknown:
        raise ValueError(f"{schema.name} has the fields {', '.join(dtype.names)}, not {', '.join(sorted(unknown))}")
    missing = [name for name in dtype.names if name not in value and name not in STAMPS]
    if missing and former is None:
        raise ValueError(f"{', '.join(missing)} missing; give all fields, because no former value has them")
    if former is not None:
        if len(former) != dtype.itemsize:
            raise ValueError(f"the former value has {len(former)} bytes, and {schema.name} {dtype.itemsize}")
        row = np.frombuffer(former, dtype)[0].copy()
    for name, one in value.items():
        row[name] = one
    return row.tobytes()

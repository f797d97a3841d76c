"""From payloads to values that JSON has, and back."""

from typing import Any

import numpy as np

from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.decoding.json_values import format_json_text
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded, convert_decoded_to_json
from msgq.impl.records.arrays import STAMP_FIELDS

_payload_decoder = PayloadDecoder()


def decode_payload(schema: Schema | None, data: bytes) -> Any:
    """Return what a payload says by its schema, made of what JSON has; an `Undecoded` where it cannot be said.

    Its reason is "" where there is nothing to decode it by.
    """
    return convert_decoded_to_json(_payload_decoder.decode_payload(schema, data), data)


def format_decoded_value(value: Any) -> str:
    """Return a decoded payload in one line for people; in hexadecimal what was not decoded, and why."""
    if not isinstance(value, Undecoded):
        return format_json_text(value, ensure_ascii=False)
    return value.data.hex(" ", -4) + (f"  ({value.reason})" if value.reason else "")


def encode_payload(schema: Schema, value: Any, former: bytes | None = None) -> bytes:
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
    if dtype.names is None:
        row = np.zeros((), dtype)
        row[()] = value
        return row.tobytes()
    rows = np.zeros(1, dtype)
    if former is not None:
        if len(former) != dtype.itemsize:
            raise ValueError(f"previous value has {len(former)} bytes, but {schema.name} has {dtype.itemsize}")
        rows = np.frombuffer(former, dtype).copy()
    missing = [name for name in _assign_record_fields(rows[0], value, schema.name, "") if name not in STAMP_FIELDS]
    if missing and former is None:
        raise ValueError(f"{', '.join(missing)} missing; give all fields, because no previous value exists")
    return rows.tobytes()


def _assign_record_fields(row: Any, value: Any, schema_name: str, path: str) -> list[str]:
    """Write the fields of a JSON object into a record, and return the names of the missing fields.

    Parameters
    ----------
    what : name of the record in errors.
    path : what is before the name of a field, "" or "outer.".

    Raises
    ------
    ValueError : a field is unknown, or its value does not fit.
    """
    names = row.dtype.names
    if not isinstance(value, dict):
        raise ValueError(f"{schema_name} needs an object with the fields {', '.join(names)}, not {value!r}")
    if unknown := value.keys() - set(names):
        raise ValueError(f"{schema_name} has no field {', '.join(sorted(unknown))}; its fields are {', '.join(names)}")
    missing = [path + name for name in names if name not in value]
    for name, item in value.items():
        missing += _assign_field(row, name, item, path + name)
    return missing


def _check_array_shape(former: Any, value: Any) -> None:
    """Refuse a value that NumPy would repeat or cut to make it fit.

    Raises
    ------
    ValueError : it has another number of elements, or a fraction where the field has whole numbers.
    """
    if np.shape(value) != np.shape(former):
        raise ValueError(f"{value!r} has the shape {np.shape(value)}, but the field has {np.shape(former)}")
    numbers = np.asarray(value)
    if former.dtype.kind in "iu" and numbers.dtype.kind == "f" and (numbers != np.trunc(numbers)).any():
        raise ValueError(f"{value!r} has fractions, but the field has whole numbers")


def _assign_field(outer: Any, at: str | int, value: Any, path: str) -> list[str]:
    """Write one field, or one element of an array of records, and return the names of the missing fields."""
    inner = outer[at]
    if inner.dtype.names is None:
        try:
            _check_array_shape(inner, value)
            outer[at] = value
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{path}: {error}") from error
        return []
    if isinstance(inner, np.void):
        return _assign_record_fields(inner, value, path, f"{path}.")
    if not isinstance(value, list) or len(value) != len(inner):
        raise ValueError(f"{path} needs a list of {format_count_noun(len(inner), 'element')}, not {value!r}")
    return [name for i, item in enumerate(value) for name in _assign_field(inner, i, item, f"{path}[{i}]")]

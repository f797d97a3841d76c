"""Conversion of payloads to JSON values, and back."""

import re
from typing import Any

import numpy as np

from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.decoding.json_values import format_json_text
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded, convert_decoded_to_json
from msgq.impl.records.arrays import STAMP_FIELDS

_CONTROL_CHARACTERS_REGEX = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # except tabs and ends of lines
_payload_decoder = PayloadDecoder()


def decode_payload(schema: Schema | None, data: bytes) -> Any:
    """Return the decoded payload as plain JSON types; `Undecoded` if decoding fails.

    The reason of the `Undecoded` is "" if the endpoint has no schema.
    """
    return convert_decoded_to_json(_payload_decoder.decode_payload(schema, data), data)


def decode_text(data: bytes) -> str | None:
    """Return a payload as text; None: not UTF-8, or with control characters other than tabs and ends of lines."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL_CHARACTERS_REGEX.search(text) else text


def format_decoded_value(value: Any, most: int | None = None) -> str:
    """Return a decoded payload as one line.

    A payload without a schema is shown as text if `decode_text` returns a text. Other undecoded payloads are shown in
    hexadecimal with the reason.

    `most`: largest number of characters of each text, and of elements of each list; None: no limit.
    """
    if not isinstance(value, Undecoded):
        return format_json_text(truncate_value(value, most), ensure_ascii=False)
    if not value.reason and (text := decode_text(value.data)) is not None:
        return str(truncate_value(text, most))
    return format_hex_bytes(value.data, most) + (f"  ({value.reason})" if value.reason else "")


def format_hex_bytes(data: bytes, most: int | None = None) -> str:
    """Return bytes in hexadecimal, at most `most` bytes."""
    if most is None or len(data) <= most:
        return data.hex(" ", -4)
    return f"{data[:most].hex(' ', -4)} {_describe_remainder(len(data) - most)}"


def truncate_value(value: Any, most: int | None) -> Any:
    """Return a value of plain JSON types with at most `most` characters of each text, and elements of each list."""
    if most is None:
        return value
    if isinstance(value, str) and len(value) > most:
        return value[:most] + _describe_remainder(len(value) - most)
    if isinstance(value, list):
        remainder = [_describe_remainder(len(value) - most)] if len(value) > most else []
        return [truncate_value(item, most) for item in value[:most]] + remainder
    if isinstance(value, dict):
        return {name: truncate_value(item, most) for name, item in value.items()}
    return value


def _describe_remainder(count: int) -> str:
    return f"... {count:,} more"


def encode_payload(schema: Schema, value: Any, former: bytes | None = None) -> bytes:
    """Return the payload of a struct schema for a JSON object with its fields.

    Args:
        former: payload with the values of fields that `value` omits. None: `value` must have all fields except the
            timestamps, which the writer sets.

    Raises:
        ValueError: the schema is not a dtype, the value does not fit the dtype, or fields are missing.
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

    Args:
        schema_name: name of the record in errors.
        path: prefix of field names in errors: "" or "outer.".

    Raises:
        ValueError: a field is unknown, or its value does not fit.
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
    """Check that a value has the shape of its field. NumPy would repeat or truncate other values.

    Raises:
        ValueError: the number of elements differs, or a value has a fraction and the field has integers.
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

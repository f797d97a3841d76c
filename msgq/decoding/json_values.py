"""Conversion of decoded values to JSON, for all encodings and all outputs.

- Texts, true, false and null stay unchanged. A half of a surrogate pair is escaped.
- Integers are numbers with all digits, also beyond 2**53. Integers of more than 2048 bits are refused.
- NaN and infinities, which JSON does not support, are the texts "NaN", "Infinity" and "-Infinity".
- Bytes are text in base64.
- Times (datetimes, the Timestamp of Protocol Buffers) are texts like "2026-01-31 00:00:00+00:00", with a fraction
  unless it is 0. A NumPy time finer than microseconds is its number.
- Structs and messages of Protocol Buffers are objects by the names in the dtype or the .proto file. Only set fields of
  a message are included. Enums are names, or numbers without a name. Maps are objects.
- Keys of other types are the text of their JSON form: "1", "true", "null", "[1, 2]". Two keys with the same text are
  refused.
- Sequences and arrays are lists. All other values are converted by `str`.

Values that `PayloadDecoder` returns are at most `VALUE_NESTING_MAX` levels deep.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, MutableSequence, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

_INTEGER_BITS_MAX = 2048  # Python's lowest limit for the conversion to text is 640 digits
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_json_text(value: Any, ensure_ascii: bool = True) -> str:
    """Return a value as JSON text, by the rules of this module.

    Raises:
        ValueError: see `convert_to_json`.
    """
    return json.dumps(convert_to_json(value), allow_nan=False, ensure_ascii=ensure_ascii)


def convert_to_json(value: Any) -> Any:
    """Return a value of plain JSON types: dict, list, str, int, finite float, bool and None.

    Raises:
        ValueError: an integer has more than 2048 bits, or two keys have the same text.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _check_integer_size(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _format_nonfinite_float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if hasattr(value, "dtype"):
        return _convert_numpy_value(value)
    if isinstance(value, Mapping):
        return _build_json_object((key, convert_to_json(item)) for key, item in value.items())
    if isinstance(value, Sequence):
        return [convert_to_json(item) for item in value]
    if hasattr(value, "ListFields"):
        return _convert_protobuf_message(value)
    return str(value)


def _check_integer_size(value: int) -> int:
    if value.bit_length() > _INTEGER_BITS_MAX:
        raise ValueError(
            f"value has an integer of {value.bit_length()} bits; JSON output takes at most {_INTEGER_BITS_MAX}"
        )
    return value


def _format_nonfinite_float(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _build_json_object(members: Any) -> dict[str, Any]:
    """Return an object. Keys may have any type, and values become plain JSON types."""
    json_object: dict[str, Any] = {}
    for key, member in members:
        name = _format_object_key(key)
        if name in json_object:
            raise ValueError(f"object has two keys that are both written as {name[:100]!r} in JSON")
        json_object[name] = member
    return json_object


def _format_object_key(key: Any) -> str:
    text = convert_to_json(key)
    return text if isinstance(text, str) else json.dumps(text)


def _convert_numpy_value(value: Any) -> Any:
    if value.shape:
        return value.tolist() if _has_json_elements(value) else [convert_to_json(item) for item in value]
    if value.dtype.names is not None:
        return {name: convert_to_json(value[name]) for name in value.dtype.names}
    scalar = value.item()
    return str(scalar) if hasattr(scalar, "dtype") else convert_to_json(scalar)  # a long double has no type in Python


def _has_json_elements(array: Any) -> bool:
    """Return True if the elements of an array become plain JSON types."""
    import numpy as np  # it is there, as there is an array

    kind = array.dtype.kind
    return kind in "biu" or (kind == "f" and array.dtype.itemsize <= 8 and bool(np.isfinite(array).all()))


def _convert_protobuf_message(message: Any) -> Any:
    if (
        message.DESCRIPTOR.full_name == "google.protobuf.Timestamp"
        and (time := _format_protobuf_timestamp(message)) is not None
    ):
        return time
    return {field.name: _convert_protobuf_field(field, value) for field, value in message.ListFields()}


def _convert_protobuf_field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        return _build_json_object((key, _convert_protobuf_value(value_field, value[key])) for key in value)
    if isinstance(value, MutableSequence):
        return [_convert_protobuf_value(field, item) for item in value]
    return _convert_protobuf_value(field, value)


def _convert_protobuf_value(field: Any, value: Any) -> Any:
    named = None if field.enum_type is None else field.enum_type.values_by_number.get(value)
    return convert_to_json(value) if named is None else named.name


def _format_protobuf_timestamp(stamp: Any) -> str | None:
    """Return a Timestamp as text; None: another type, or a time outside of the calendar."""
    try:
        time = _UNIX_EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return None
    if not 0 <= stamp.nanos < 10**9:
        return None
    text = str(time)
    return f"{text[:19]}.{stamp.nanos:09}{text[-6:]}" if stamp.nanos % 1000 else text

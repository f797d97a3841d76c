"""Replacements for Arrow types that Delta tables do not support."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

_SIGNED_TYPE_BY_BITS = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def convert_to_delta_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of the same values in Spark and Delta.

    Numbers become signed numbers of sufficient size, lists get variable lengths, and times become UTC. Nanoseconds
    become numbers, because Delta's times have microseconds.
    """
    if kinds.is_struct(arrow_type):
        return pa.struct([field.with_type(convert_to_delta_type(field.type)) for field in arrow_type])
    if kinds.is_list(arrow_type) or kinds.is_fixed_size_list(arrow_type):
        return pa.list_(convert_to_delta_type(arrow_type.value_type))
    if kinds.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if kinds.is_unsigned_integer(arrow_type):
        return _SIGNED_TYPE_BY_BITS[arrow_type.bit_width]
    if kinds.is_duration(arrow_type) or (kinds.is_timestamp(arrow_type) and arrow_type.unit == "ns"):
        return pa.int64()
    if kinds.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp("us", "UTC")
    return arrow_type

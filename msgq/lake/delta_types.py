"""Types of Arrow that tables of lakes do not have, and those that take their place."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

_UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def plain_type(of: pa.DataType) -> pa.DataType:
    """Return the type that Spark and Delta have for the same values: signed numbers that have room, lists of any
    length, times of UTC, and nanoseconds as numbers, as times there have microseconds.
    """
    if kinds.is_struct(of):
        return pa.struct([field.with_type(plain_type(field.type)) for field in of])
    if kinds.is_list(of) or kinds.is_fixed_size_list(of):
        return pa.list_(plain_type(of.value_type))
    if kinds.is_fixed_size_binary(of):
        return pa.binary()
    if kinds.is_unsigned_integer(of):
        return _UNSIGNED[of.bit_width]
    if kinds.is_duration(of) or (kinds.is_timestamp(of) and of.unit == "ns"):
        return pa.int64()
    if kinds.is_timestamp(of) and of.tz is not None:
        return pa.timestamp("us", "UTC")
    return of

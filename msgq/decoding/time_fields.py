"""Time fields of messages with struct schemas."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema


def find_time_field_offset(schema: Schema | None, field: str) -> int | None:
    """Return the byte offset of an 8-byte time field in messages of a struct schema; None: no such field."""
    if schema is None or schema.encoding != "struct":
        return None
    try:
        fields = struct_dtype(schema).fields
    except ValueError:
        return None
    if not fields or field not in fields:
        return None
    kind, offset, *_ = fields[field]
    return int(offset) if kind in (np.dtype("<u8"), np.dtype("<i8")) else None


@lru_cache(maxsize=1024)
def make_time_fields_dtype(schema: Schema | None, fields: tuple[str, ...]) -> np.dtype[Any] | None:
    """Return a dtype with only these time fields; None: a field is missing.

    The dtype has the size of the messages of a struct schema.
    """
    offsets = [find_time_field_offset(schema, field) for field in fields]
    if schema is None or None in offsets:
        return None
    itemsize = struct_dtype(schema).itemsize
    described: Any = {"names": fields, "formats": ["<i8"] * len(fields), "offsets": offsets, "itemsize": itemsize}
    dtype: np.dtype[Any] = np.dtype(described)
    return dtype

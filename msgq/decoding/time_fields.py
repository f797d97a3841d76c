"""Where messages of struct schemas have times."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema


def find_time_field_offset(schema: Schema | None, field: str) -> int | None:
    """Return the byte at which messages of a struct schema have a field with a time, 8 bytes; None: they have none."""
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
    """Return a dtype of the size of messages of a struct schema that has only these times; None: they lack one."""
    offsets = [find_time_field_offset(schema, field) for field in fields]
    if schema is None or None in offsets:
        return None
    itemsize = struct_dtype(schema).itemsize
    described: Any = {"names": fields, "formats": ["<i8"] * len(fields), "offsets": offsets, "itemsize": itemsize}
    dtype: np.dtype[Any] = np.dtype(described)
    return dtype

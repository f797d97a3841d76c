"""Origin times in payloads: the field `origin_time` of a struct schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.common.schema import Schema
from msgq.decoding.fixed_headers import read_fixed_headers
from msgq.decoding.time_fields import find_time_field_offset


@lru_cache(maxsize=1024)
def find_origin_time_byte_offset(schema: Schema | None) -> int | None:
    """Return the byte offset of the field `origin_time` of a struct schema; None: no such field."""
    return find_time_field_offset(schema, "origin_time")


def read_origin_times(schema: Schema | None, data: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the origin time of each payload, in ns since the epoch; 0: none."""
    origins = np.zeros(len(data), np.int64)
    at = find_origin_time_byte_offset(schema)
    if at is not None:
        fits, times = read_fixed_headers(data, np.dtype("<i8"), at)
        origins[fits] = np.maximum(times, 0)
    return origins

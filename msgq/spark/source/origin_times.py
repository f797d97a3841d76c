"""Origin times in payloads: the field `origin_time` of a struct schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.common.schema import Schema
from msgq.decoding.time_fields import find_time_field_offset

_ORIGIN_TIME_BYTES = 8


@lru_cache(maxsize=1024)
def find_origin_time_byte_offset(schema: Schema | None) -> int | None:
    """Return the byte offset of the field `origin_time` of a struct schema; None: no such field."""
    return find_time_field_offset(schema, "origin_time")


def read_origin_times(schema: Schema | None, data: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the origin time of each payload, in ns since the epoch; 0: none."""
    origins = np.zeros(len(data), np.int64)
    at = find_origin_time_byte_offset(schema)
    if at is None or not len(data):
        return origins
    offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1].astype(np.int64)
    fits = np.diff(offsets) >= at + _ORIGIN_TIME_BYTES
    if fits.any():
        eight = np.arange(at, at + _ORIGIN_TIME_BYTES)
        payload = np.frombuffer(data.buffers()[2], np.uint8)
        origins[fits] = payload[offsets[:-1][fits, None] + eight].view("<i8")[:, 0]
    return np.maximum(origins, 0)

"""Headers of a fixed size in payloads, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_NumpyArray = np.ndarray[Any, Any]


def read_fixed_headers(
    data: pa.BinaryArray, dtype: np.dtype[Any], header_offset: int = 0
) -> tuple[_NumpyArray, _NumpyArray]:
    """Return a mask of the payloads with a header, shape (len(data),), and the headers of these payloads.

    Args:
        data: payloads. A payload that is null, or ends before its header, has no header.
        dtype: dtype of the headers, which are copies.
        header_offset: byte offset of the header in each payload.
    """
    data = data.cast(pa.binary())
    size = dtype.itemsize
    if not len(data):
        return np.zeros(0, np.bool_), np.zeros(0, dtype)
    offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
    whole = (np.diff(offsets) >= header_offset + size) & np.asarray(data.is_valid())
    if not whole.any():
        return whole, np.zeros(0, dtype)
    payload = np.frombuffer(data.buffers()[2], np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(payload, size)
    return whole, windows[offsets[:-1][whole] + header_offset].view(dtype)[:, 0]

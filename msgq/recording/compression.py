"""Chunks as they were before they were compressed."""

from __future__ import annotations

import lz4.frame
import zstandard


def decompress(name: str, data: memoryview[int], size: int) -> bytes:
    """Return the `size` bytes that were compressed.

    Parameters
    ----------
    name : "zstd", "lz4", or "" for none.
    data : what was read.
    size : what the file says; not much more than that is ever allocated.

    Raises
    ------
    ValueError : the data are damaged, or another number of bytes.
    """
    if name == "":
        content = bytes(data)
    elif name == "zstd":
        content = _zstd(data, size)
    elif name == "lz4":
        content = _lz4(data, size)
    else:
        raise ValueError(f"it is compressed with {name[:40]!r}, which MCAP does not know")
    if len(content) != size:
        raise ValueError(f"it has {len(content)} bytes instead of {size}")
    return content


def _zstd(data: memoryview[int], size: int) -> bytes:
    if not len(data):  # some writers compress nothing to nothing, which is no frame
        return b""
    try:
        known = zstandard.frame_content_size(data)
        if known not in (-1, size):  # the library would believe the frame
            raise ValueError(f"it has {known} bytes instead of {size}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"zstd cannot decompress it: {error or 'out of memory'}") from None


def _lz4(data: memoryview[int], size: int) -> bytes:
    try:
        content: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
        return content
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(f"lz4 cannot decompress it: {error or 'out of memory'}") from None

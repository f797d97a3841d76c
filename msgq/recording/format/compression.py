"""Chunks as they were before they were compressed."""

from __future__ import annotations

import lz4.frame
import zstandard


def decompress(name: str, data: memoryview[int], size: int) -> bytes:
    """Return the `size` bytes that were compressed. No more than one beyond that is ever made of the data.

    Parameters
    ----------
    name : "zstd", "lz4", or "" for none.
    data : what was read.
    size : what the file says.

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


def said_size(name: str, data: memoryview[int]) -> int | None:
    """Return how many bytes the compressed data say that they are; None where they do not.

    Raises
    ------
    ValueError : they are no such data.
    """
    try:
        if name == "zstd":
            known = zstandard.frame_content_size(data)
            return None if known < 0 else known
        if name == "lz4":
            return lz4.frame.get_frame_info(data)["content_size"] or None
    except (zstandard.ZstdError, RuntimeError) as error:
        raise ValueError(f"{name} cannot decompress it: {error}") from None
    return len(data)


def _zstd(data: memoryview[int], size: int) -> bytes:
    if not len(data):  # some writers compress nothing to nothing, which is no frame
        return b""
    try:
        if zstandard.frame_content_size(data) == size:  # the library would believe the frame
            return zstandard.ZstdDecompressor().decompress(data)
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            content = stream.read(size) if size else b""
            if stream.read(1):
                raise ValueError(f"it has more bytes than {size}")
            return content
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"zstd cannot decompress it: {error or 'out of memory'}") from None


def _lz4(data: memoryview[int], size: int) -> bytes:
    try:
        content: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
        return content
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(f"lz4 cannot decompress it: {error or 'out of memory'}") from None

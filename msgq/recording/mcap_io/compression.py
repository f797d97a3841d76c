"""Decompression of chunks, payloads and files. The libraries are imported at the first use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 4 << 20
_ZSTD_FRAME_HEAD_BYTES_MAX = 18  # maximum bytes of a frame's head, which has the size of its content


def decompress_data(name: str, data: memoryview[int], size: int) -> bytes:
    """Return the decompressed bytes. The call never produces more than `size` + 1 bytes.

    Args:
        name: "zstd", "lz4", or "" for uncompressed data.
        data: compressed bytes.
        size: expected number of decompressed bytes, as stated in the file.

    Raises:
        ValueError: the data is damaged, or has another size.
    """
    if name == "":
        content = bytes(data)
    elif name == "zstd":
        content = _decompress_zstd(data, size)
    elif name == "lz4":
        content = _decompress_lz4(data, size)
    else:
        raise ValueError(f"compression {name[:40]!r} is not defined by MCAP")
    if len(content) != size:
        raise ValueError(f"the decompressed data have {len(content)} bytes instead of {size}")
    return content


def decompress_zstd_frame(data: bytes, most: int) -> bytes:
    """Return the decompressed content of a zstd frame.

    Raises:
        ValueError: the frame is damaged, or has more than `most` bytes.
    """
    import zstandard

    try:
        stated_size = zstandard.frame_content_size(data)
        size = stated_size if stated_size >= 0 else most
        if size > most:
            raise ValueError(
                f"the decompressed data have {size} bytes; max_chunk_bytes (--max-chunk-bytes) allows {most}"
            )
        return (
            _decompress_zstd(memoryview(data), size)
            if stated_size >= 0
            else zstandard.ZstdDecompressor().decompress(data, most)
        )
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"zstd cannot decompress the data: {error or 'out of memory'}") from None


def iter_decompressed_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of a file in blocks.

    Raises:
        ValueError: the following data is damaged, or the file is truncated.
    """
    import zstandard

    try:
        stated_size, size = zstandard.frame_content_size(file.read(_ZSTD_FRAME_HEAD_BYTES_MAX)), 0
        file.seek(0)
        with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False) as stream:
            while block := stream.read1(_BLOCK_BYTES):  # at damaged data, `read` would lose the preceding data
                size += len(block)
                yield block
        if size < stated_size:  # the first frame; the library takes an early end for the end
            raise ValueError(f"the compressed data were truncated: they have {size} of {stated_size} bytes")
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"zstd cannot decompress the data: {error or 'out of memory'}") from None


def find_compatibility_error(name: str, data: memoryview[int], size: int) -> str:
    """Return why other readers may refuse data that `decompress_data` accepts; "": no reason."""
    import lz4.frame
    import zstandard

    try:
        if name == "lz4":
            whole = lz4.frame.LZ4FrameDecompressor()
            whole.decompress(data, max_length=size + 1)
            return "" if whole.eof else "the lz4 frame has no end mark"
        if name == "zstd" and len(data) and zstandard.frame_content_size(data) != size:
            zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except (RuntimeError, zstandard.ZstdError, MemoryError) as error:
        return f"{name} stops at {error}"
    return ""


def read_decompressed_size(name: str, data: memoryview[int]) -> int | None:
    """Return the decompressed size in bytes that the compressed data states; None: the data states no size.

    Raises:
        ValueError: the data is not in this format.
    """
    import lz4.frame
    import zstandard

    try:
        if name == "zstd":
            stated_size = zstandard.frame_content_size(data)
            return None if stated_size < 0 else stated_size
        if name == "lz4":
            return lz4.frame.get_frame_info(data)["content_size"] or None
    except (zstandard.ZstdError, RuntimeError) as error:
        raise ValueError(f"{name} cannot decompress the data: {error}") from None
    return len(data)


def _decompress_zstd(data: memoryview[int], size: int) -> bytes:
    import zstandard

    if not len(data):  # some writers compress nothing to nothing, which is no frame
        return b""
    try:
        if zstandard.frame_content_size(data) == size:  # the library would believe the frame
            return zstandard.ZstdDecompressor().decompress(data)
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            content = stream.read(size) if size else b""
            if stream.read(1):
                raise ValueError(f"the decompressed data have more than {size} bytes")
            return content
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"zstd cannot decompress the data: {error or 'out of memory'}") from None


def _decompress_lz4(data: memoryview[int], size: int) -> bytes:
    import lz4.frame

    try:
        content: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
        return content
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(f"lz4 cannot decompress the data: {error or 'out of memory'}") from None

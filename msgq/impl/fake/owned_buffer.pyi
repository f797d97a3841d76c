"""Bytes as buffers, for classes in Python, which can be none themselves before Python 3.12."""

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class OwnedBuffer(Buffer):
    """Bytes of its own, as a buffer: each buffer keeps the object."""

    @property
    def export_count(self) -> int:
        """Buffers that look through it."""

    def __init__(self, content: bytes | int) -> None:
        """Have these bytes, read-only; or so many zeros, to be written."""

    def __len__(self) -> int: ...
    def check_exportable(self) -> None:
        """Raise an error when it shows nothing now. Called before each new buffer."""

    def copy_bytes(self, size: int) -> bytes:
        """Return a copy of the first bytes."""

def copy_buffer(data: object) -> bytes:
    """Return a copy of any contiguous buffer.

    Raises
    ------
    TypeError : it is no buffer. BufferError, ValueError: it is not contiguous.
    """

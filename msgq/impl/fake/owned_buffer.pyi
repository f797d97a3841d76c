"""Bytes as buffers. Before Python 3.12, classes written in Python cannot provide buffers."""

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class OwnedBuffer(Buffer):
    """An object that owns bytes and provides them as a buffer. Each exported buffer keeps the object alive."""

    @property
    def export_count(self) -> int:
        """Number of exported buffers."""

    def __init__(self, content: bytes | int) -> None:
        """Hold the given bytes, read-only. If the argument is a number, hold this number of writable zero bytes."""

    def __len__(self) -> int: ...
    def check_exportable(self) -> None:
        """Raise an error if the object must not be exported now. Called before each new buffer."""

    def copy_bytes(self, size: int) -> bytes:
        """Return a copy of the first `size` bytes."""

def copy_buffer(data: object) -> bytes:
    """Return a copy of any contiguous buffer.

    Raises
    ------
    TypeError : `data` is not a buffer.
    BufferError, ValueError : the buffer is not contiguous.
    """

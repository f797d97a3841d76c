"""Memory of descriptors, mapped for as long as somebody looks at it."""

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class Region:
    """A mapped descriptor. It keeps no descriptor open, and is unmapped when the last reference goes.

    Any thread may use it. A child process of a fork shares the memory.
    """

    @property
    def size(self) -> int:
        """Bytes that are mapped."""

    def __init__(self, fd: int, size: int, writable: bool, endpoint: str) -> None:
        """Map `size` bytes of `fd` from its start; the caller has made sure that the file has them.

        Raises
        ------
        SegmentError : the system refuses.
        """

    def read_u64(self, offset: int) -> int:
        """Return the word at `offset` bytes, in this machine's order of bytes."""

    def write_u64(self, offset: int, value: int) -> None:
        """Write a word. For a writable region only.

        Parameters
        ----------
        offset : bytes from the region's start.
        value : 64 bits, in this machine's order of bytes.
        """

    def copy_in(self, data: Buffer, size: int) -> None:
        """Copy to the region's start, without the GIL. For a writable region only.

        Parameters
        ----------
        data : contiguous.
        size : bytes that it must have.

        Raises
        ------
        MessageSizeError : `data` has another size.
        """

@disjoint_base
class View(Buffer):
    """The first `size` bytes of a region, as a buffer. Keeps the region mapped."""

    def __init__(self, region: Region, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

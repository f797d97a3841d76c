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

    @property
    def lost(self) -> bool:
        """Whether somebody has made the memory smaller, and this process has run into it: there are zeros now."""

    def read_u64(self, offset: int) -> int:
        """Return the word at `offset` bytes, in this machine's order of bytes."""

@disjoint_base
class View(Buffer):
    """The first `size` bytes of a region, as a buffer. Keeps the region mapped."""

    def __init__(self, region: Region, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

"""Memory of descriptors, mapped for as long as somebody looks at it; and parts of it that are held meanwhile."""

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class Mapping:
    """A mapped descriptor. It keeps no descriptor open, and is unmapped when the last reference goes.

    Any thread may use it. A child process of a fork shares the memory.
    """

    @property
    def size(self) -> int:
        """Bytes that are mapped."""

    def __init__(self, fd: int, size: int, writable: bool, endpoint: str, populate: bool = False) -> None:
        """Map `size` bytes of `fd` from its start; the caller has made sure that the file has them.

        With `populate` all pages are found now, 0.2 to 0.3 ms for 1 MB, else each at the first look at it. A page that
        the file does not have yet is made, so this is for memory that is all there.

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

    def __init__(self, region: Mapping, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

@disjoint_base
class PinOwner:
    """What holds parts of shared memory for views: a subscriber that pins slots, a client that leases buffers.

    A class in Cython derives from it and says what `_unpin(part)` does. That is called once for each view: when it is
    released, or when it and all buffers that look through it are gone; never in a forked child, for which the parent
    holds nothing. It raises nothing. The view keeps its holder until then. A holder whose `_unpin` needs an object has
    `no_gc_clear`: holder and view may be garbage together, and the collector would take that object away first.
    """

@disjoint_base
class PinnedView(View):
    """A view of a part that nobody reuses while it is held. Made by its holder, in Cython only.

    The GIL keeps threads apart.
    """

    def __init__(self) -> None:
        """Raise TypeError: its holder makes it."""

    def release(self) -> None:
        """Let go of the part now; the view shows nothing afterwards. A second call does nothing.

        Raises
        ------
        BufferError : buffers still look through the view.
        """

"""What all kinds share: files, waiting, views, the context, the poller."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class EndpointFile:
    """A piece's file, mapped and open for as long as somebody has this. Made between the compiled modules only."""

    @property
    def name(self) -> str:
        """The piece's name."""

    @property
    def prefix(self) -> str:
        """The prefix that it lives in; "": none."""

    @property
    def trust(self) -> object:
        """Whose files are used as one's own are, as it was given; None: MSGQ_TRUST says."""

    @property
    def mode(self) -> int:
        """Permissions of the file, as they were when it was opened."""

    @property
    def path(self) -> str:
        """Where it is."""

@disjoint_base
class DescriptorMapping:
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
class MappedView(Buffer):
    """The first `size` bytes of a region, as a buffer. Keeps the region mapped."""

    def __init__(self, region: DescriptorMapping, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

@disjoint_base
class PinOwner:
    """What holds parts of shared memory for views: a subscriber that pins slots, a client that leases buffers.

    A class in Cython derives from it and defines `_unpin_part(part)`, which is called once for each view: when the view
    is released, or when the view and all its buffers are gone. In a forked child it is never called. It raises nothing.
    The view keeps its owner until then. An owner whose `_unpin_part` needs an object has `no_gc_clear`: owner and view
    may be garbage together, and the collector would clear that object first.
    """

@disjoint_base
class PinnedView(MappedView):
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

_Watcher = Callable[[str], object]

def watch_connects(watcher: _Watcher | None) -> _Watcher | None:
    """Call this with the endpoint whenever a socket of the ring or of ZMQ is about to connect, in any thread.

    What it raises comes out of `connect`. None: nothing is called. Returns the former one.
    """

@disjoint_base
class Context:
    """Where sockets are made; every `connect` takes one.

    It holds nothing in this backend, and closing it closes no socket. Safe to share between threads.
    """

    def term(self) -> None:
        """Refuse new sockets from now on. Returns at once; sockets that are connected stay usable."""

    @property
    def closed(self) -> bool:
        """Whether `term` was called."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class ForkAwareHandle:
    """What a program opens. A cdef class that derives from it says how it reopens in a forked child (handle.pxi)."""

    @property
    def endpoint(self) -> str:
        """The endpoint's name; "" before there is one."""

    @property
    def closed(self) -> bool:
        """Whether it is closed, or was never opened."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Waitable(ForkAwareHandle):
    """A reader whose sleep ends when there is something to read; `Poller` and asyncio take any kind.

    Not to be used by itself. A kind is a ``cdef class`` that derives from it by ``waiting.pxd``; waiting.pyx says what
    it has to define. For `arecv` it has a method ``receive(non_blocking)`` that returns None when there is nothing.

    One thread at a time may use it; a second one gets `ConcurrentUseError`, except in `close`.
    """

    _asyncio_wait: Any

    def close(self) -> None:
        """Give all places back; also by leaving a with block. Closing twice does no harm.

        While another thread waits with it, that one is woken and gets `EndpointClosedError`.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is something to read, for select, epoll and event loops.

        It is the same one until this closes, and must not be read or closed. Another program writes, so a receive that
        follows should not wait (``receive(True)``): another reader may have been faster, and a publisher that is killed
        in the middle of a send may leave a moment's false hope. In a forked child it is closed; ask again there.

        Raises
        ------
        IpcError : no descriptor, memory or thread is left.
        EndpointClosedError : it is closed, or was never opened.

        Notes
        -----
        The first call in a process starts a thread, one for all, which sleeps until something comes. Every receive that
        leaves nothing costs about a microsecond more. For passive subscribers, on Linux before 5.16, and beyond 127
        readers the thread looks once a millisecond.
        """

    def areceive(self) -> Coroutine[Any, Any, Any]:
        """Return what comes next, in a task of an asyncio loop. It waits only if nothing is there.

        Does not look at the time-out: use asyncio's. A cancelled call takes nothing. One task at a time may wait.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits for it.
        """

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Do what `areceive` does: pyzmq's name, for compatibility."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...

@disjoint_base
class ThreadSharedHandle(Waitable):
    """A `Waitable` that any thread may use, also several threads at the same time."""

    def close(self) -> None:
        """Leave; messages and values stay. Closing twice does no harm.

        Open jobs of a queue's handle return to the queue. Elements and keys that this handle alone could write are free
        again. Threads that wait with the handle are woken and get `EndpointClosedError`; a thread in the middle of a
        large copy ends it first. In a forked child only the child's own handle is closed.
        """

@disjoint_base
class Poller:
    """Waits for several readers at once. One thread at a time may use it, and those that are registered."""

    def registerSocket(self, socket: Waitable) -> None:
        """Wait for this one, too (compatibility: stock's name); the poller keeps it alive.

        Registering it again does nothing.

        Raises
        ------
        EndpointClosedError : the socket is closed, or was never connected.
        """

    def unregisterSocket(self, socket: Waitable) -> None:
        """Wait for this one no longer (compatibility: stock's name).

        Raises
        ------
        KeyError : it is not registered.
        """

    def poll(self, timeout: float) -> list[Any]:
        """Return those of the registered sockets whose next receive returns (or raises) at once, in their order.

        Parameters
        ----------
        timeout : milliseconds to wait for the first (compatibility: stock's unit), 0 to 2**31 - 1, fractions rounded
            up; -1 waits for ever.

        Returns
        -------
        The registered objects themselves; an empty list when the time is up, or nothing is registered.

        Raises
        ------
        InvalidValueError : any other time-out.
        EndpointClosedError : a registered socket was closed.

        Notes
        -----
        Sleeps as `receive` does, with the GIL released. There is no limit to the number of sockets; beyond 128, and on
        Linux before 5.16, it looks every millisecond instead of sleeping.
        """

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do what `poll` does, in a task of an asyncio loop. The sockets are those that are registered at the call.

        Raises
        ------
        ConcurrentUseError : another task waits for one of the sockets.
        """

"""Parts that all kinds share: files, waiting, views, the context, the poller."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class EndpointFile:
    """The mapped file of an endpoint. The last reference unmaps and closes it. Only compiled modules create it."""

    @property
    def name(self) -> str:
        """Name of the endpoint."""

    @property
    def prefix(self) -> str:
        """Prefix of the endpoint; "": none."""

    @property
    def trust(self) -> object:
        """The given `trust`: users whose files are accepted; None: MSGQ_TRUST."""

    @property
    def mode(self) -> int:
        """Permissions of the file when it was opened."""

    @property
    def path(self) -> str:
        """Path of the file."""

@disjoint_base
class DescriptorMapping:
    """Mapped memory of a file descriptor. The last reference unmaps the memory. The descriptor may be closed.

    Any thread may use a mapping. A forked child shares the memory.
    """

    @property
    def size(self) -> int:
        """Number of mapped bytes."""

    def __init__(self, fd: int, size: int, writable: bool, endpoint: str, populate: bool = False) -> None:
        """Map the first `size` bytes of `fd`. The file must have this size.

        populate : True: map all pages now, which takes 0.2 to 0.3 ms per MB and allocates missing pages. False: map
        each page at its first access.

        Raises
        ------
        SegmentError : the system refused the mapping.
        """

    @property
    def lost(self) -> bool:
        """True if the file was truncated and this process accessed the missing part. The memory then reads as zeros."""

    def read_u64(self, offset: int) -> int:
        """Return the 64-bit word at byte `offset`, in native byte order."""

@disjoint_base
class MappedView(Buffer):
    """Buffer of the first `size` bytes of a mapping. Keeps the memory mapped."""

    def __init__(self, region: DescriptorMapping, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

@disjoint_base
class PinOwner:
    """Base of objects that hold parts of shared memory for views, for example slots of a channel or buffers of frames.

    A derived cdef class defines `_unpin_part(part)`, without exceptions. It is called once per view: when the view is
    released, or with the last reference to the view and its buffers. It is never called in a forked child. A view keeps
    its owner alive. If `_unpin_part` needs another object, the class must have `no_gc_clear`, because the collector may
    clear the object first.
    """

@disjoint_base
class PinnedView(MappedView):
    """A view of a part of shared memory that is not reused while the view exists. Its `PinOwner` creates it.

    Threads need the GIL.
    """

    def __init__(self) -> None:
        """Raise TypeError: only a `PinOwner` creates views."""

    def release(self) -> None:
        """Release the part now. The view is empty afterwards. A second call has no effect.

        Raises
        ------
        BufferError : buffers of the view still exist.
        """

_Watcher = Callable[[str], object]

def watch_connects(watcher: _Watcher | None) -> _Watcher | None:
    """Set a function that is called with the endpoint before each `connect` of a topic or ZMQ socket, in any thread.

    Exceptions of the function propagate from `connect`. None removes the function. Returns the previous function.
    """

@disjoint_base
class Context:
    """Context of sockets; each `connect` takes one (compatibility: stock and pyzmq).

    A context holds no resources in shared memory. Threads may share a context.
    """

    def term(self) -> None:
        """Refuse new connections. Returns at once. Connected sockets continue."""

    @property
    def closed(self) -> bool:
        """True if `term` was called."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class ForkAwareHandle:
    """Base of handles that notice a fork. Derived cdef classes define how to reopen in a forked child (handle.pxi)."""

    @property
    def endpoint(self) -> str:
        """Name of the endpoint; "" before `connect`."""

    @property
    def closed(self) -> bool:
        """True if the handle is closed or was never opened."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Waitable(ForkAwareHandle):
    """Base of all readers that can wait: in `receive`, in a `Poller`, and in asyncio.

    Derived cdef classes define the methods that waiting.pxi lists. `areceive` calls their ``receive(non_blocking)``,
    which returns None if nothing is available.

    One thread at a time may use a reader; a second thread gets `ConcurrentUseError`, except in `close`.
    """

    _asyncio_wait: Any

    def close(self) -> None:
        """Close the reader. The end of a with block closes as well. A second close has no effect.

        If another thread waits with this reader, its call raises `EndpointClosedError`.
        """

    def fileno(self) -> int:
        """Return a file descriptor that is readable while a message is available, for select, epoll and event loops.

        The descriptor stays the same until `close`. Do not read or close it. After it became readable, receive without
        waiting (``receive(True)``): another reader may take the message first, and a publisher that is killed during a
        send may cause a false notification. In a forked child the descriptor is closed; call `fileno` again.

        Raises
        ------
        IpcError : no descriptor, memory or thread is left.
        EndpointClosedError : the reader is closed, or was never opened.

        Notes
        -----
        The first call in a process starts one thread, which sleeps until a message arrives. A receive that leaves no
        message costs about 1 us more. For passive subscribers, on Linux before 5.16, and for more than 127 readers,
        the thread polls once per millisecond.
        """

    def areceive(self) -> Coroutine[Any, Any, Any]:
        """Receive the next message in a task of an asyncio loop.

        The default time-out does not apply; use time-outs of asyncio. A cancelled call has taken no message. One task
        at a time may wait.

        Raises
        ------
        EndpointClosedError : the reader is closed, also during the wait.
        ConcurrentUseError : another task waits with this reader.
        """

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Do the same as `areceive` (compatibility: pyzmq's name)."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...

@disjoint_base
class ThreadSharedHandle(Waitable):
    """A `Waitable` that several threads may use at the same time."""

    def close(self) -> None:
        """Close the handle. Messages and values stay. A second close has no effect.

        Open jobs return to their queue. Elements and keys owned by this handle become free. Waiting threads get
        `EndpointClosedError`; a thread that copies finishes its copy first. In a forked child, only the child's handle
        closes.
        """

@disjoint_base
class Poller:
    """Waits for several readers at once. One thread at a time may use a poller and its registered readers."""

    def registerSocket(self, socket: Waitable) -> None:
        """Register a reader (compatibility: stock's name). The poller keeps the reader alive.

        Registering a reader again has no effect.

        Raises
        ------
        EndpointClosedError : the reader is closed, or was never connected.
        """

    def unregisterSocket(self, socket: Waitable) -> None:
        """Remove a reader (compatibility: stock's name).

        Raises
        ------
        KeyError : the reader is not registered.
        """

    def poll(self, timeout: float) -> list[Any]:
        """Wait until a receive of a registered reader would return or raise at once, and return all such readers.

        Parameters
        ----------
        timeout : milliseconds (compatibility: stock's unit), 0 to 2**31 - 1, fractions are rounded up; -1 waits without
            limit.

        Returns
        -------
        The registered objects, in the order of registration. Empty after the time-out, or if no reader is registered.

        Raises
        ------
        InvalidValueError : an invalid time-out.
        EndpointClosedError : a registered reader was closed.

        Notes
        -----
        The GIL is released during the wait. The number of readers has no limit. With more than 128 readers, and on
        Linux before 5.16, the wait polls once per millisecond.
        """

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do the same as `poll` in a task of an asyncio loop, with the readers registered at the call.

        Raises
        ------
        ConcurrentUseError : another task waits with one of the readers.
        """

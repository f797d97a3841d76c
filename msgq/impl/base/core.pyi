"""Parts that all kinds share: files, waiting, views, the context, the poller."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class EndpointFile:
    """The mapped file of an endpoint.

    The last reference unmaps and closes the file. Only compiled modules create this object.
    """

    @property
    def name(self) -> str:
        """Name of the endpoint."""

    @property
    def prefix(self) -> str:
        """Prefix of the endpoint; "": none."""

    @property
    def trust(self) -> object:
        """Argument `trust` of the constructor: users whose files are accepted; None: MSGQ_TRUST."""

    @property
    def bus(self) -> Bus | None:
        """Bus of the endpoint; None: shared memory."""

    @property
    def mode(self) -> int:
        """Permissions of the file when it was opened."""

    @property
    def path(self) -> str:
        """Path of the file."""

def is_trusted(user: int) -> bool:
    """Return True if files of this user are accepted: own files, root's, and those of trusted users (``trust=``)."""

def check_owner(owner: int, endpoint: str, path: str) -> None:
    """Raise an error if a file belongs to a user who is not trusted.

    Raises:
        SegmentError: the owner is not trusted. The text names the owner, and how to trust the owner.
    """

def get_sharing_advice(path: str) -> str:
    """Return the end of an error text: what the owner of a file must do so that this user may open it; "": no file."""

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

        `populate`: True: map all pages now, and allocate missing pages; the call takes 0.2 to 0.3 ms per MB. False: map
        each page at its first access.

        Raises:
            SegmentError: the system refused the mapping.
        """

    @property
    def lost(self) -> bool:
        """True if another program truncated the file and this process accessed the missing part.

        Since this access, the whole mapping reads as zeros.
        """

    def read_u64(self, offset: int) -> int:
        """Return the 64-bit word at byte `offset`, in native byte order."""

@disjoint_base
class MappedView(Buffer):
    """Buffer of the first `size` bytes of a mapping. The buffer keeps the memory mapped."""

    def __init__(self, region: DescriptorMapping, size: int, writable: bool) -> None: ...
    def __len__(self) -> int: ...

@disjoint_base
class PinOwner:
    """Base of objects that hold parts of shared memory for views, for example slots of a channel or buffers of frames.

    A derived cdef class defines `_unpin_part(part)`, without exceptions. The method is called once for each view: when
    the view is released, or when the last reference to the view and its buffers disappears. The method is never called
    in a forked child. A view keeps its owner alive. If `_unpin_part` needs another object, the class must have
    `no_gc_clear`, because the collector may clear the object first.
    """

class PinnedView(MappedView):
    """A view of a part of shared memory that is not reused while the view exists. Only a `PinOwner` creates views.

    Any thread that holds the GIL may use a view.
    """

    def __init__(self) -> None:
        """Raise TypeError, because only a `PinOwner` creates views."""

    def release(self) -> None:
        """Release the part of shared memory, and make the view empty. A second call has no effect.

        Raises:
            BufferError: buffers of the view still exist.
        """

_Watcher = Callable[[str], object]

def watch_connects(watcher: _Watcher | None) -> _Watcher | None:
    """Set a function that each `connect` of a topic or ZMQ socket calls first.

    The function gets the endpoint, and runs in the thread of `connect`. Exceptions of the function propagate from
    `connect`. Pass None to remove the function. Returns the previous function.
    """

@disjoint_base
class Context:
    """Context of sockets (compatibility: stock and pyzmq). Each `connect` has a parameter for a context.

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

def copy_message(data: object, endpoint: str, can_have_schema: bool = False) -> bytes:
    """Return the bytes of a message that a program wants to send.

    Raises:
        InvalidTypeError: the object has no bytes, or its bytes are addresses of Python objects.
        BufferError, ValueError: the object is not contiguous in memory.
    """

def add_hidden_base(kind: type[Any], base: type[Any]) -> None:
    """Look up names that a class and its bases lack in another class, before `object`.

    The names are not in `dir`, `help` and mocks of the class, because `__bases__` does not contain the other class.
    Call the function before the class has subclasses. The other class must not change afterwards.
    """

@disjoint_base
class VirtualTime:
    """The time of a bus. It advances only while a call waits.

    Attributes:
        now_ns: current time in ns.
    """

    now_ns: int

    def new_origin_time(self, count: int = 1) -> int:
        """Return the virtual time as a unique origin in ns. `count`: number of consecutive reserved values."""

@disjoint_base
class Bus:
    """A host in the memory of this process, with files and a time of its own. One thread at a time may use a bus.

    The endpoints of a bus are the real ones, in anonymous private memory. Their files end with the bus; open handles
    keep their memory. The fake backend has the subclass, which decides what happens during a wait.

    Args:
        clock: the time that handles of the bus read.

    Attributes:
        prefix: the first part of the paths of its files, and of prefixes that select them, such as "bus:7".
        segment_size: data bytes of topics that are opened without a size; 0: the default.
    """

    segment_size: int

    def __init__(self, clock: VirtualTime) -> None: ...
    @property
    def clock(self) -> VirtualTime:
        """The time that handles of the bus read."""

    @property
    def prefix(self) -> str:
        """The first part of the paths of its files."""

    def resolve_prefix(self, asked: str | None) -> str:
        """Return the prefix of an endpoint's paths on this bus, as `settings.resolve_prefix` for shared memory."""

    def end(self) -> None:
        """Remove the names of all files. Open handles keep their memory. Another bus may get the same prefix."""

    def pin_file(self, number: int) -> None:
        """Keep the open file with this number (inode) until the bus ends, so that no other file gets the number."""

    def wait_until(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
        """Wait until `ready` returns True, or until the timeout in virtual time.

        Args:
            ready: called after each event.
            timeout_ns: timeout in ns; None: forever.
            subject: awaited object, for error texts.

        Raises:
            DeadlockError: the wait would never end.
        """

    def on_opened(self, handle: Any) -> None:
        """Called when a handle of the bus has opened its endpoint."""

    def on_closed(self, handle: Any) -> None:
        """Called when a handle of the bus was closed."""

    def on_published(self, handle: Any) -> None:
        """Called when an observed publisher has sent messages."""

    def check_descriptor_allowed(self, endpoint: str) -> None:
        """Raise an error if a wait for a descriptor would never end."""

def list_private_files(root: str) -> list[tuple[str, int, int, int]]:
    """Return name, number, bytes and mode of each file whose path is `root`, a slash and the name.

    `root`: as `Bus.prefix`.
    """

def require_own_prefix(bus: Bus, prefix: str | None, endpoint: str) -> str:
    """Return the prefix of the paths of an endpoint that a handle of a bus opens.

    Raises:
        StateError: the prefix is that of another bus. A handle reads the time of its own bus.
    """

def warn_in_event_loop() -> int:
    """Warn if this thread runs an event loop of asyncio. Call it before a sleep."""

def make_wait_condition(waitables: tuple[Any, ...]) -> tuple[Callable[[], bool], str]:
    """Return a function that is True if a receive of one reader would return or raise, and a text about the wait.

    Raises:
        EndpointClosedError: a reader is closed.
        ConcurrentUseError: another node uses a reader.
    """

@disjoint_base
class ForkAwareHandle:
    """Base of handles that detect a fork. Derived cdef classes define how to reopen in a forked child (handle.pxi)."""

    @property
    def _bus(self) -> Bus | None: ...
    def _choose_bus(self) -> Bus | None:
        """Return the bus on which the handle opens its endpoint; None: shared memory. The fake backend overrides it."""

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
class ReceiveGate:
    """Stops receives of a subscriber until a controller releases them. Only compiled modules use this class."""

@disjoint_base
class Waitable(ForkAwareHandle):
    """Base of all readers that can wait: in `receive`, in a `Poller`, and in asyncio.

    Derived cdef classes define the methods that waiting.pxi lists. The method `areceive` calls
    ``receive(non_blocking)`` of the derived class. This call returns None if no message is available.

    One thread at a time may use a reader. A second thread gets `ConcurrentUseError`, but may call `close`.
    """

    _asyncio_reader: Any

    def _receive_now(self) -> Any:
        """Take the next message without waiting; None: there is none. For nodes of a simulation."""

    def _default_timeout_ns(self) -> int | None:
        """Return the timeout in ns of a receive without an argument; None: forever. For nodes of a simulation."""

    def _would_receive_return(self) -> bool:
        """Return True if a receive would return or raise at once, also during a wait on a bus."""

    def _abandon_handle(self) -> None:
        """End the handle as the death of a process does: its rows stay, without their locks. Only on a bus."""

    def close(self) -> None:
        """Close the reader. The end of a ``with`` block also closes the object. A second close has no effect.

        If another thread waits with this reader, the waiting call raises `EndpointClosedError`.
        """

    def fileno(self) -> int:
        """Return a file descriptor that is readable while a message is available, for select, epoll and event loops.

        The descriptor stays the same until `close`. Do not read from the descriptor, and do not close the descriptor.
        When the descriptor becomes readable, receive without waiting (``receive(True)``). This call may find no
        message: another reader may take the message first, the publisher may have lapped the reader, or a publisher was
        killed during a send. `fileno` and `poll` make the descriptor unreadable if no message is left. In a forked
        child the descriptor is closed; call `fileno` again.

        Raises:
            IpcError: no descriptor, memory or thread is left.
            EndpointClosedError: the reader is closed, or was never opened.

        Notes:
            The first call in a process starts one thread, which sleeps until a message arrives. A `receive` that takes
            the last waiting message takes about 1 us longer. For passive subscribers, on Linux before 5.16, and for
            more than 127 readers, the thread polls once per millisecond.
        """

    def areceive(self) -> Coroutine[Any, Any, Any]:
        """In a task of an asyncio loop, receive the next message.

        The default time-out does not apply; use time-outs of asyncio. If a call is cancelled, the message stays for the
        next call. One task at a time may wait.

        Raises:
            EndpointClosedError: the reader is closed, before or during the wait.
            ConcurrentUseError: another task waits with this reader.
        """

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Do the same as `areceive` (compatibility: pyzmq's name)."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...

@disjoint_base
class ThreadSharedHandle(Waitable):
    """A `Waitable` that several threads may use at the same time."""

    def close(self) -> None:
        """Close the handle. Messages and values in shared memory stay. A second close has no effect.

        Open jobs return to their queue. Elements and keys owned by this handle become free. A thread that waits with
        the handle gets `EndpointClosedError`. If a thread is copying a message, the copy is completed first. In a
        forked child, `close` closes the child's handle only.
        """

@disjoint_base
class Poller:
    """Waits for several readers at once: the part of a poller in C. `PyzmqPoller` registers the readers.

    One thread at a time may use a poller and its registered readers.
    """

    def _register_reader(self, reader: Waitable, result: Any, replaces: bool) -> None: ...
    def _unregister_reader(self, reader: Waitable) -> None: ...
    def poll(self, timeout: float | None = None) -> list[Any]:
        """Wait until at least one registered reader or descriptor is ready, and return all ready objects.

        A reader is ready if its next receive returns a message or raises. A poll of a lapped subscriber counts the
        losses, and the subscriber continues as after a receive. After the poll, a publisher may still lap the
        subscriber, and another reader may take a queue's message.

        Args:
            timeout: milliseconds, as in stock: 0 to 2**31 - 1. Fractions are rounded up. -1 and None wait without
                limit.

        Returns:
            The registered objects, in the order of registration, and then the descriptors. What `register` registered
            comes as a pair of the object and its event. Empty after the time-out, or if no reader is registered.

        Raises:
            InvalidValueError: an invalid time-out.
            EndpointClosedError: a registered reader was closed.

        Notes:
            The GIL is released during the wait. The number of readers has no limit. With more than 128 readers, and on
            Linux before 5.16, the wait polls once per millisecond.
        """

    def _registered_sockets(self) -> tuple[Any, ...]: ...
    def _poll_at_once(self) -> list[Any]: ...
    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """In a task of an asyncio loop, do the same as `poll`. Readers registered after the call are ignored.

        Raises:
            ConcurrentUseError: another task waits with one of the readers.
        """

"""What can be waited for: the base of all that reads."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class Waitable:
    """A reader whose sleep ends when there is something to read; `Poller` and asyncio take any kind.

    Not to be used by itself. A kind is a ``cdef class`` that derives from it by ``waiting.pxd``; waiting.pyx says what
    it has to define. For `arecv` it has a method ``receive(non_blocking)`` that returns None when there is nothing.

    One thread at a time may use it; a second one gets `ConcurrentUseError`, except in `close`.
    """

    _waiting: Any

    @property
    def endpoint(self) -> str:
        """The endpoint's name; "" before there is one."""

    @property
    def closed(self) -> bool:
        """Whether it is closed, or was never opened."""

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
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

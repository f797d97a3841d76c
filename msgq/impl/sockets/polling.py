"""Pollers: the base for backends written in Python, and the methods of pyzmq for all backends."""

from __future__ import annotations

import math
import os
import time

from msgq.common.units import WAIT_FOREVER
from msgq.errors import InvalidTypeError, InvalidValueError
from msgq.impl.base.argument_checks import POLLERR, POLLIN, POLLOUT, POLLPRI, not_connected_error, timeout_ms

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    import select
    from collections.abc import Coroutine
    from contextlib import ExitStack
    from typing import Any, ClassVar, Generic, TypeVar

    #: Element type of the list that `poll` returns.
    ReadySocket = TypeVar("ReadySocket")

    class _GenericPoller(Generic[ReadySocket]): ...

else:
    from _collections_abc import GenericAlias  # the class of `types`, without the import of that module

    ReadySocket = "ReadySocket"

    class _GenericPoller:
        __class_getitem__ = classmethod(GenericAlias)


class PythonPoller:
    """Readers of a backend written in Python. The backend defines `_poll_readers`. The core's are in core.pyi."""

    _reader_type: ClassVar[type[Any]]
    _descriptors: dict[int, tuple[Any, int]]  # see `PyzmqPoller`
    _last_poll_was_step = False  # the ring's poller reads it; there are no gates here

    if TYPE_CHECKING:  # types of the class below

        def _poll_with_descriptors(self, wait_ms: int) -> list[Any]: ...

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}  # result of `poll` for each reader

    def _register_reader(self, reader: Any, result: Any, replaces: bool) -> None:
        if not isinstance(reader, self._reader_type):
            raise TypeError("reader is of another backend")
        if reader.closed:
            raise not_connected_error(reader.endpoint)
        if replaces or reader not in self._results:
            self._results[reader] = result

    def _unregister_reader(self, reader: Any) -> None:
        del self._results[reader]

    def _registered_sockets(self) -> tuple[Any, ...]:
        return tuple(self._results)

    def _poll_readers(self, wait_ms: int) -> list[Any]:
        """Return the results of the ready readers, after a wait of at most `wait_ms` ms (-1: no limit)."""
        raise NotImplementedError

    def _poll_at_once(self) -> list[Any]:
        return self._poll_readers(0)

    def poll(self, timeout: float | None = None) -> list[Any]:
        """Wait until at least one registered object is ready: see core.pyi."""
        wait_ms = WAIT_FOREVER if timeout is None else timeout_ms(timeout)
        return self._poll_with_descriptors(wait_ms) if self._descriptors else self._poll_readers(wait_ms)

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do the same as `poll` in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        return event_loop.poll_async(self, timeout_ms(timeout))


class PyzmqPoller(_GenericPoller[ReadySocket]):
    """Registers readers and descriptors with a backend's poller, by stock's names and by pyzmq's.

    `poll` returns subscribers registered by `register` with their event, and those registered by `registerSocket`
    without. The same holds for readers that have a subscriber, their `_reader`. One thread at a time.
    """

    if TYPE_CHECKING:  # attributes of the backend's poller
        _last_poll_was_step: bool

        def _register_reader(self, reader: Any, result: Any, replaces: bool) -> None: ...
        def _unregister_reader(self, reader: Any) -> None: ...
        def _registered_sockets(self) -> tuple[Any, ...]: ...
        def _poll_at_once(self) -> list[Any]: ...
        def poll(self, timeout: float | None = None) -> list[ReadySocket]: ...  # noqa: D102

    def __init__(self) -> None:
        super().__init__()
        # by descriptor: the registered object, and its flags
        self._descriptors: dict[int, tuple[Any, int]] = {}

    def __repr__(self) -> str:
        names = [repr(socket.endpoint) for socket in self._registered_sockets()]
        return f"<msgq Poller of {', '.join([*names, *map(str, self._descriptors)]) or 'no readers'}>"

    def __len__(self) -> int:
        """Return the number of registered readers and descriptors."""
        return len(self._registered_sockets()) + len(self._descriptors)

    def __bool__(self) -> bool:
        return True

    def registerSocket(self, socket: Any) -> None:
        """Register a subscriber (compatibility: stock's name). The poller keeps it alive.

        Registering it again has no effect.

        Raises:
            InvalidTypeError: the object is not a reader of this backend.
            EndpointClosedError: the reader is closed, or was never connected.
        """
        self._register_socket(socket, socket, replaces=False)

    def unregisterSocket(self, socket: Any) -> None:
        """Remove a subscriber (compatibility: stock's name).

        Raises:
            KeyError: the reader is not registered.
        """
        self._unregister_reader(getattr(socket, "_reader", socket))

    def register(self, socket: Any, flags: int = POLLIN) -> None:
        """Register a socket or descriptor (compatibility: pyzmq's name). Registering it again changes its flags.

        Args:
            socket: a subscriber of this backend, a descriptor, or an object with `fileno`.
            flags: POLLIN and others. Subscribers support POLLIN only.

        Raises:
            InvalidValueError: no flags, or other flags than POLLIN for a subscriber.
            TypeError: a socket of pyzmq, whose descriptor does not show messages reliably.
            EndpointClosedError: the subscriber is closed.
        """
        if hasattr(socket, "receive") or hasattr(socket, "_reader"):
            if flags != POLLIN:
                raise InvalidValueError(f"flags are {flags}; give POLLIN for a subscriber")
            self._register_socket(socket, (socket, flags), replaces=True)
            return
        if hasattr(socket, "get_monitor_socket"):
            raise TypeError("descriptor of a pyzmq socket reports events, not messages; use zmq.Poller for it")
        if not flags & (POLLIN | POLLOUT | POLLERR | POLLPRI):
            raise InvalidValueError(
                f"flags are {flags}; give POLLIN, POLLOUT, POLLERR or POLLPRI, or unregister the socket"
            )
        self._descriptors[socket if isinstance(socket, int) else socket.fileno()] = socket, flags

    modify = register

    def unregister(self, socket: Any) -> None:
        """Remove a socket or descriptor (compatibility: pyzmq's name).

        Raises:
            KeyError: the object is not registered.
        """
        if hasattr(socket, "receive") or hasattr(socket, "_reader"):
            self.unregisterSocket(socket)
            return
        registered = [fd for fd, (registered, _) in self._descriptors.items() if registered is socket or fd == socket]
        del self._descriptors[registered[0] if registered else socket]

    def _register_socket(self, socket: Any, result: Any, *, replaces: bool) -> None:
        try:
            self._register_reader(getattr(socket, "_reader", socket), result, replaces)
        except TypeError as error:
            text = f"poller cannot wait for {type(socket).__name__}; give a subscriber, or a queue of its backend"
            raise InvalidTypeError(text) from error

    def _poll_with_descriptors(self, wait_ms: int) -> list[Any]:
        """Return the ready objects, after a wait of at most `wait_ms` ms (-1: no limit)."""
        deadline = math.inf if wait_ms < 0 else time.monotonic() + wait_ms / 1000
        while True:
            ready = self._poll_at_once() + self._poll_descriptors(0)
            remaining_s = deadline - time.monotonic()
            if ready or remaining_s <= 0 or self._last_poll_was_step:
                return ready
            self._poll_descriptors(None if remaining_s == math.inf else remaining_s)

    def _watch_descriptors(self) -> select.epoll:
        """Return an epoll instance that is readable while a registered descriptor is ready."""
        import select  # late, as below

        events = {POLLIN: select.EPOLLIN, POLLOUT: select.EPOLLOUT, POLLERR: select.EPOLLERR, POLLPRI: select.EPOLLPRI}
        watched = select.epoll()
        for fd, (_, flags) in self._descriptors.items():
            watched.register(fd, sum(event for flag, event in events.items() if flags & flag))
        return watched

    def _poll_descriptors(self, seconds: float | None) -> list[tuple[Any, int]]:
        """Wait for all descriptors, including those of subscribers, and return the ready foreign ones."""
        import select  # late, like the next: few pollers have descriptors
        from contextlib import ExitStack

        native_flags = (
            (POLLIN, select.POLLIN),
            (POLLOUT, select.POLLOUT),
            (POLLERR, select.POLLERR),
            (POLLPRI, select.POLLPRI),
        )
        poll = select.poll()
        for fd, (_, flags) in self._descriptors.items():
            poll.register(fd, sum(native for flag, native in native_flags if flags & flag))
        with ExitStack() as exit_stack:
            for socket in self._registered_sockets() if seconds != 0 else ():
                poll.register(_duplicate_descriptor(socket, exit_stack), select.POLLIN)
            events = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        return [
            (self._descriptors[fd][0], sum(flag for flag, native in native_flags if event & native) or POLLERR)
            for fd, event in events
            if fd in self._descriptors
        ]


def _duplicate_descriptor(socket: Any, exit_stack: ExitStack) -> int:
    """Return a copy of a subscriber's descriptor.

    If another thread closes the original, no other file replaces the copy.
    """
    copy = os.dup(socket.fileno())
    exit_stack.callback(os.close, copy)
    if socket.closed:
        raise not_connected_error(socket.endpoint)
    return copy

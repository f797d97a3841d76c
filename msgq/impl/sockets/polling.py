"""Pollers: the base for backends written in Python, and the methods of pyzmq for all backends."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from types import GenericAlias

from msgq.common.units import WAIT_FOREVER
from msgq.errors import InvalidTypeError, InvalidValueError
from msgq.impl.base.argument_checks import POLLERR, POLLIN, POLLOUT, POLLPRI, not_connected_error, timeout_ms

TYPE_CHECKING = False  # as in msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, ClassVar, Generic, TypeVar

    #: What `poll` returns a list of.
    ReadySocket = TypeVar("ReadySocket")

    class _GenericPoller(Generic[ReadySocket]): ...

else:
    ReadySocket = "ReadySocket"

    class _GenericPoller:
        __class_getitem__ = classmethod(GenericAlias)


_SELECT_FLAGS = (
    (POLLIN, select.POLLIN),
    (POLLOUT, select.POLLOUT),
    (POLLERR, select.POLLERR),
    (POLLPRI, select.POLLPRI),
)


class PythonPoller:
    """Registered subscribers of a poller. The stub core.pyi documents the methods; the backend defines `poll`."""

    _socket_type: ClassVar[type[Any]]
    _last_poll_was_step = False  # for the ring's: no gates here

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    def registerSocket(self, socket: Any) -> None:
        """Register a subscriber (compatibility: stock's name). Registering it again has no effect."""
        if not isinstance(socket, self._socket_type):
            raise TypeError(f"poller cannot wait for {type(socket).__name__}; give a SubSocket of its backend")
        if socket.closed:
            raise not_connected_error(socket.endpoint)
        if not any(socket is registered for registered in self._sockets):
            self._sockets.append(socket)

    def unregisterSocket(self, socket: Any) -> None:
        """Remove a subscriber (compatibility: stock's name)."""
        if not any(socket is registered for registered in self._sockets):
            raise KeyError(socket)
        self._sockets = [registered for registered in self._sockets if registered is not socket]

    def _registered_sockets(self) -> list[Any]:
        return self._sockets.copy()

    def poll(self, timeout: float) -> list[Any]:
        """Return the subscribers whose next receive returns or raises at once."""
        raise NotImplementedError

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do the same as `poll` in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        return event_loop.poll_async(self, timeout_ms(timeout))


class PyzmqPoller(_GenericPoller[ReadySocket]):
    """Adds pyzmq's features to a backend's poller: any descriptor, flags, and results as pairs for a dict.

    `poll` returns subscribers registered by `register` with their event, and those registered by `registerSocket`
    without. The same holds for readers that have a subscriber, their `_reader`. One thread at a time.
    """

    if TYPE_CHECKING:  # of the backend's poller
        _last_poll_was_step: bool

        def _registered_sockets(self) -> list[Any]: ...

    def __init__(self) -> None:
        super().__init__()
        self._paired_sockets: list[Any] = []  # subscribers that were registered by `register`
        self._wrapping_sockets: list[Any] = []  # registered objects that read with their own subscriber
        self._descriptors: dict[int, tuple[Any, int]] = {}  # by descriptor: the registered object, and its flags

    def __repr__(self) -> str:
        names = [repr(socket.endpoint) for socket in self._registered_sockets()]
        return f"<msgq Poller of {', '.join([*names, *map(str, self._descriptors)]) or 'no readers'}>"

    def __len__(self) -> int:
        """Return the number of registered readers and descriptors."""
        return len(self._registered_sockets()) + len(self._descriptors)

    def __bool__(self) -> bool:
        return True

    def registerSocket(self, socket: Any) -> None:
        """Register a subscriber (compatibility: stock's name); see core.pyi."""
        try:
            super().registerSocket(getattr(socket, "_reader", socket))  # type: ignore[misc]  # of the backend's poller
        except TypeError as error:
            text = f"poller cannot wait for {type(socket).__name__}; give a subscriber, or a queue of its backend"
            raise InvalidTypeError(text) from error
        if hasattr(socket, "_reader") and not any(socket is registered for registered in self._wrapping_sockets):
            self._wrapping_sockets.append(socket)

    def unregisterSocket(self, socket: Any) -> None:
        """Remove a subscriber (compatibility: stock's name); see core.pyi."""
        super().unregisterSocket(getattr(socket, "_reader", socket))  # type: ignore[misc]  # of the backend's poller
        self._wrapping_sockets = [registered for registered in self._wrapping_sockets if registered is not socket]

    def register(self, socket: Any, flags: int = POLLIN) -> None:
        """Register a socket or descriptor (compatibility: pyzmq's name). Registering it again changes its flags.

        Parameters
        ----------
        socket : a subscriber of this backend, a descriptor, or an object with `fileno`.
        flags : POLLIN and others. Subscribers support POLLIN only.

        Raises
        ------
        InvalidValueError : no flags, or other flags than POLLIN for a subscriber.
        TypeError : a socket of pyzmq, whose descriptor does not show messages reliably.
        EndpointClosedError : the subscriber is closed.
        """
        if hasattr(socket, "receive") or hasattr(socket, "_reader"):
            if flags != POLLIN:
                raise InvalidValueError(f"flags are {flags}; give POLLIN for a subscriber")
            self.registerSocket(socket)
            if not any(socket is registered for registered in self._paired_sockets):
                self._paired_sockets.append(socket)
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

        Raises
        ------
        KeyError : the object is not registered.
        """
        if hasattr(socket, "receive") or hasattr(socket, "_reader"):
            self.unregisterSocket(socket)
            self._paired_sockets = [registered for registered in self._paired_sockets if registered is not socket]
            return
        registered = [fd for fd, (registered, _) in self._descriptors.items() if registered is socket or fd == socket]
        del self._descriptors[registered[0] if registered else socket]

    def poll(self, timeout: float | None = None) -> list[ReadySocket]:
        """Return the ready objects: see `Poller.poll`. None and -1 wait forever."""
        milliseconds = WAIT_FOREVER if timeout is None else timeout
        if not self._descriptors:
            ready: list[Any] = super().poll(milliseconds)  # type: ignore[misc]  # of the backend's poller
            return self._pair_with_events(ready) if self._paired_sockets or self._wrapping_sockets else ready
        deadline = math.inf if milliseconds < 0 else time.monotonic() + milliseconds / 1000
        while True:
            ready = self._pair_with_events(super().poll(0)) + self._poll_descriptors(0)  # type: ignore[misc]
            remaining_s = deadline - time.monotonic()
            if ready or remaining_s <= 0 or self._last_poll_was_step:
                return ready
            self._poll_descriptors(None if remaining_s == math.inf else remaining_s)

    def _pair_with_events(self, ready: list[Any]) -> list[Any]:
        """Return the registered objects of ready subscribers, in pairs if they were registered in this way."""
        wrappers = {id(wrapper._reader): wrapper for wrapper in self._wrapping_sockets}
        ready = [wrappers.get(id(reader), reader) for reader in ready]
        paired = [any(socket is registered for registered in self._paired_sockets) for socket in ready]
        return [(socket, POLLIN) if pair else socket for socket, pair in zip(ready, paired, strict=True)]

    def _poll_descriptors(self, seconds: float | None) -> list[tuple[Any, int]]:
        """Wait for all descriptors, including those of subscribers, and return the ready foreign ones."""
        poll = select.poll()
        for fd, (_, flags) in self._descriptors.items():
            poll.register(fd, sum(native for flag, native in _SELECT_FLAGS if flags & flag))
        with contextlib.ExitStack() as exit_stack:
            for socket in self._registered_sockets() if seconds != 0 else ():
                poll.register(_duplicate_descriptor(socket, exit_stack), select.POLLIN)
            events = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        return [
            (self._descriptors[fd][0], sum(flag for flag, native in _SELECT_FLAGS if event & native) or POLLERR)
            for fd, event in events
            if fd in self._descriptors
        ]


def _duplicate_descriptor(socket: Any, exit_stack: contextlib.ExitStack) -> int:
    """Return a copy of a subscriber's descriptor.

    If another thread closes the original, no other file replaces the copy.
    """
    copy = os.dup(socket.fileno())
    exit_stack.callback(os.close, copy)
    if socket.closed:
        raise not_connected_error(socket.endpoint)
    return copy

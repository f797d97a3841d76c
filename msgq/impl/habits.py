"""What users of pyzmq are used to, as thin aliases: numbers of flags, and a poller that takes descriptors as well."""

from __future__ import annotations

import math
import select
import time
from typing import TYPE_CHECKING, Any, Protocol

from msgq.errors import Again, InvalidValueError

#: As in ZeroMQ.
NOBLOCK = 1
POLLIN, POLLOUT, POLLERR, POLLPRI = 1, 2, 4, 8

_OF_SELECT = ((POLLIN, select.POLLIN), (POLLOUT, select.POLLOUT), (POLLERR, select.POLLERR), (POLLPRI, select.POLLPRI))
_FOR_EVER = -1


class Receiver(Protocol):
    """A subscriber of any backend."""

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    def receive(self, non_blocking: bool = ...) -> bytes | None:
        """See subscriber.pyi."""

    def receive_into(self, buffer: Any, non_blocking: bool = ...) -> int | None:
        """See subscriber.pyi."""

    def setTimeout(self, timeout: float) -> None:
        """See subscriber.pyi."""


def again(endpoint: str) -> Again:
    """Return the error for a receive that found nothing."""
    return Again("no message is there, or came in time", endpoint)


class ReceiverHabits:
    """pyzmq's names for what a subscriber that is written in Python does. (Those of the ring have their own.)"""

    __slots__ = ()

    def recv(self: Receiver, flags: int = 0) -> bytes:
        """Return the next message; `Again` when there is none (flags=NOBLOCK), or none came in time."""
        message = self.receive(bool(flags & NOBLOCK))
        if message is None:
            raise again(self.endpoint)
        return message

    def recv_into(self: Receiver, buffer: Any, flags: int = 0) -> int:
        """Do the same into memory of the caller's, and return the message's size."""
        size = self.receive_into(buffer, bool(flags & NOBLOCK))
        if size is None:
            raise again(self.endpoint)
        return size


class Registrations:
    """Adds to a backend's poller what pyzmq's has: any descriptor, flags, and pairs that make a dict.

    A subscriber that was registered by `register` is returned with its event, one by `registerSocket` as it is. One
    thread at a time.
    """

    if TYPE_CHECKING:  # of the backend's poller

        def registerSocket(self, socket: Any) -> None:
            """See subscriber.pyi."""

        def unregisterSocket(self, socket: Any) -> None:
            """See subscriber.pyi."""

        _stepped: bool

        def _subscribers(self) -> list[Any]: ...

    def __init__(self) -> None:
        super().__init__()
        self._pairs: list[Any] = []  # subscribers that were registered by `register`
        self._foreign: dict[int, tuple[Any, int]] = {}  # descriptor: what was registered, and its flags

    def register(self, socket: Any, flags: int = POLLIN) -> None:
        """Wait for this one, too; registering it again changes its flags.

        Parameters
        ----------
        socket : a subscriber of this backend, a descriptor, or what has a `fileno`.
        flags : POLLIN and the others. Subscribers know POLLIN only.

        Raises
        ------
        InvalidValueError : no flags, or others than POLLIN for a subscriber.
        TypeError : a socket of pyzmq, whose descriptor says little.
        EndpointClosedError : the subscriber is closed.
        """
        if hasattr(socket, "receive"):
            if flags != POLLIN:
                raise InvalidValueError(f"flags are {flags}; a subscriber can only be polled for POLLIN")
            self.registerSocket(socket)
            if not any(socket is known for known in self._pairs):
                self._pairs.append(socket)
            return
        if hasattr(socket, "get_monitor_socket"):
            raise TypeError("the descriptor of a pyzmq socket tells of news, not of messages; use zmq.Poller for it")
        if not flags & (POLLIN | POLLOUT | POLLERR | POLLPRI):
            raise InvalidValueError(f"flags are {flags}; give POLLIN, POLLOUT, POLLERR or POLLPRI, or unregister it")
        self._foreign[socket if isinstance(socket, int) else socket.fileno()] = socket, flags

    modify = register

    def unregister(self, socket: Any) -> None:
        """Wait for this one no longer.

        Raises
        ------
        KeyError : it is not registered.
        """
        if hasattr(socket, "receive"):
            self.unregisterSocket(socket)
            self._pairs = [known for known in self._pairs if known is not socket]
            return
        found = [fd for fd, (known, _) in self._foreign.items() if known is socket or fd == socket]
        del self._foreign[found[0] if found else socket]

    def poll(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready: see `Poller.poll`; None waits for ever, as -1 does."""
        milliseconds = _FOR_EVER if timeout is None else timeout
        if not self._foreign:
            ready = super().poll(milliseconds)  # type: ignore[misc]  # of the backend's poller
            return self._paired(ready) if self._pairs else ready
        until = math.inf if milliseconds < 0 else time.monotonic() + milliseconds / 1000
        while True:
            found = self._paired(super().poll(0)) + self._foreign_ready(0)  # type: ignore[misc]
            left = until - time.monotonic()
            if found or left <= 0 or self._stepped:
                return found
            self._foreign_ready(None if left == math.inf else left)

    def _paired(self, ready: list[Any]) -> list[Any]:
        return [(one, POLLIN) if any(one is known for known in self._pairs) else one for one in ready]

    def _foreign_ready(self, seconds: float | None) -> list[tuple[Any, int]]:
        """Wait for descriptors, those of the subscribers included, and return what of the foreign ones is ready."""
        poll = select.poll()
        for fd, (_, flags) in self._foreign.items():
            poll.register(fd, sum(native for ours, native in _OF_SELECT if flags & ours))
        if seconds != 0:
            for socket in self._subscribers():
                poll.register(socket.fileno(), select.POLLIN)
        events = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        return [
            (self._foreign[fd][0], sum(ours for ours, native in _OF_SELECT if event & native) or POLLERR)
            for fd, event in events
            if fd in self._foreign
        ]

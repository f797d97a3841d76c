"""What users of pyzmq are used to, as thin aliases: flags, options, and a poller that takes descriptors as well."""

from __future__ import annotations

import functools
import math
import operator
import select
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from msgq.errors import Again, InvalidValueError

#: As in ZeroMQ.
NOBLOCK = 1
_SNDMORE = 2
POLLIN, POLLOUT, POLLERR, POLLPRI = 1, 2, 4, 8

_OF_SELECT = ((POLLIN, select.POLLIN), (POLLOUT, select.POLLOUT), (POLLERR, select.POLLERR), (POLLPRI, select.POLLPRI))
_FOR_EVER = -1
_OPTION_MAX = 2**31 - 1


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
    """Return the error for a receive that found nothing. Where zmq is imported, it is a `zmq.Again` as well."""
    # Who writes `except zmq.Again` has imported it; nobody else needs to.
    theirs = getattr(sys.modules.get("zmq"), "Again", None)
    kind = Again if theirs is None else _both(theirs)
    return kind("no message is there, or came in time", endpoint)


@functools.cache
def _both(theirs: Any) -> type[Again]:
    class BothAgain(Again, theirs):  # type: ignore[misc]
        """`msgq.Again` and `zmq.Again` at once."""

        def __init__(self, message: str, endpoint: str) -> None:
            super().__init__(message, endpoint)
            self.strerror = str(Again(message, endpoint))  # this is the text, to zmq.Again

        def __reduce__(self) -> tuple[Any, ...]:
            return again, (self.endpoint,)

    return BothAgain


def check_send_flags(flags: int, endpoint: str) -> None:
    """Check the flags of a `send`. NOBLOCK asks for what it does anyway.

    Raises
    ------
    InvalidValueError : others than NOBLOCK.
    """
    if flags & _SNDMORE:
        text = f"flags are {flags}, with SNDMORE: there are no multipart messages here; send one message of all parts"
        raise InvalidValueError(text, endpoint)
    if flags & ~NOBLOCK:
        raise InvalidValueError(f"flags are {flags}; a send takes 0 or NOBLOCK", endpoint)


def check_option(name: str, value: int, least: int, endpoint: str) -> int:
    """Return the value for an option of a socket: a whole number from `least` to 2**31 - 1."""
    number = operator.index(value)
    if not least <= number <= _OPTION_MAX:
        raise InvalidValueError(f"{name} is {number}; give {least} to {_OPTION_MAX}", endpoint)
    return number


def check_linger(milliseconds: int, endpoint: str) -> int:
    """Return a time to linger: milliseconds, -1 for ever."""
    return check_option("linger", milliseconds, -1, endpoint)


def check_rcvhwm(messages: int, endpoint: str) -> int:
    """Return a high-water mark: messages, 0 for no limit."""
    return check_option("rcvhwm", messages, 0, endpoint)


def check_before_connect(name: str, closed: bool, endpoint: str) -> None:
    """Refuse to change on a connected socket what only counts at `connect`."""
    if not closed:
        raise InvalidValueError(f"{name} counts when the socket connects; set it before, or close it first", endpoint)


class Endpoint(Protocol):
    """A socket of any backend."""

    @property
    def endpoint(self) -> str: ...  # noqa: D102


class NothingLingers:
    """pyzmq's `linger`, where what was sent has arrived when `send` returns. (The ring's sockets have their own.)"""

    __slots__ = ()

    @property
    def linger(self) -> int:
        """Milliseconds that what was sent may take to leave after `close`: 0, whatever is set. Nothing is under way."""
        return 0

    @linger.setter
    def linger(self: Endpoint, milliseconds: int) -> None:
        check_linger(milliseconds, self.endpoint)


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

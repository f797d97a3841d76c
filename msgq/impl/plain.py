"""What the backends that are written in Python have in common. The ring has the same in C, where it must be fast."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Protocol

from msgq.errors import EndpointClosedError, InvalidValueError

FOR_EVER = -1
TIMEOUT_MAX_MS = 2**31 - 1


def timeout_ms(timeout: float, endpoint: str = "") -> int:
    """Return a time-out in milliseconds, checked and rounded up; -1 is for ever.

    Raises
    ------
    InvalidValueError : below 0 and not -1, or above 2**31 - 1.
    """
    if timeout != FOR_EVER and not 0 <= timeout <= TIMEOUT_MAX_MS:
        text = f"a time-out of {timeout} ms is not possible; give 0 to {TIMEOUT_MAX_MS}, or -1 to wait for ever"
        raise InvalidValueError(text, endpoint)
    return math.ceil(timeout)


def closed_error(endpoint: str) -> EndpointClosedError:
    """Return the error for a socket that has no connection."""
    return EndpointClosedError("is closed, or was never connected; call connect() first", endpoint)


def check_readers_wait(timeout: float | None, interval: float, n: int | None, endpoint: str) -> None:
    """Check the arguments of `wait_for_readers`. (The ring's, too.)

    Raises
    ------
    InvalidValueError : a negative time-out or `n`, or an interval that is not above 0.
    """
    if (timeout is not None and not timeout >= 0) or not interval > 0 or (n is not None and n < 0):
        text = f"timeout={timeout} (seconds, None for ever), interval={interval} (> 0 seconds), n={n}: not possible"
        raise InvalidValueError(text, endpoint)


def rows(messages: Any) -> Iterable[Any]:
    """Return the messages of a `send_many`: an iterable as it is, of an array its rows, as bytes.

    Raises
    ------
    TypeError : one message, or neither an iterable nor an array.
    BufferError : the array is not C-contiguous.
    """
    several: Iterable[Any] = messages
    if isinstance(messages, (list, tuple, Iterator)):
        return several
    try:
        view = memoryview(messages)
    except TypeError:  # no buffer, so it must be an iterable
        return several
    except ValueError:  # NumPy exports datetimes only without their type
        view = memoryview(messages.view(f"V{messages.itemsize}"))
    if view.ndim == 0 or (view.ndim == 1 and view.itemsize == 1):
        raise TypeError("send_many takes several messages, and these bytes are one; use send, or an array of rows")
    if "O" in view.format.partition(":")[0]:
        raise TypeError("an array of Python objects cannot be sent as bytes: they would be addresses")
    if not view.c_contiguous:
        raise BufferError("the array's rows do not follow one another in memory; make a C-contiguous copy")
    data, count = view.tobytes(), len(view)
    size = len(data) // count if count else 0
    return [data[i * size : (i + 1) * size] for i in range(count)]


class Reserving(Protocol):
    """A publisher whose messages can be written in place."""

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    def send(self, data: Any, /) -> None:
        """See publisher.pyi."""

    def _begin_reservation(self, size: int) -> None:
        """Keep everybody out until the end, if a message of this size may be sent at all."""

    def _end_reservation(self) -> None:
        """Let others in again."""


class Reservation:
    """Room for one message, to be written in place: ``with pub.reserve(size) as view``. Serves once."""

    def __init__(self, socket: Reserving, size: int) -> None:
        self._socket, self._size = socket, size
        self._buffer: bytearray | None = None

    def __enter__(self) -> memoryview:
        if self._buffer is not None:
            raise InvalidValueError("a reservation serves once; reserve again", self._socket.endpoint)
        self._socket._begin_reservation(self._size)
        try:
            self._buffer = bytearray(self._size)
        except BaseException:
            self._socket._end_reservation()
            raise
        self._view = memoryview(self._buffer)
        return self._view

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with suppress(BufferError):  # an array made from it still lives
            self._view.release()
        self._socket._end_reservation()
        if kind is None and self._buffer is not None:
            self._socket.send(self._buffer)


class PlainPoller:
    """The registered subscribers of a poller. See poller.pyi for the contract; `poll` is the backend's."""

    _takes: ClassVar[type[Any]]
    _stepped = False  # for the ring's: no gates here

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    def registerSocket(self, socket: Any) -> None:
        """Wait for this one, too; the poller keeps it alive. Registering it again does nothing."""
        if not isinstance(socket, self._takes):
            raise TypeError(f"a poller waits for a SubSocket of its backend, not {type(socket).__name__}")
        if socket.closed:
            raise closed_error(socket.endpoint)
        if not any(socket is known for known in self._sockets):
            self._sockets.append(socket)

    def unregisterSocket(self, socket: Any) -> None:
        """Wait for this one no longer."""
        if not any(socket is known for known in self._sockets):
            raise KeyError(socket)
        self._sockets = [known for known in self._sockets if known is not socket]

    def _subscribers(self) -> list[Any]:
        return self._sockets.copy()

    def poll(self, timeout: float) -> list[Any]:
        """Return those whose next receive returns (or raises) at once."""
        raise NotImplementedError

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do what `poll` does, in a task of an asyncio loop."""
        from msgq.impl import event_loop

        return event_loop.poll(self, timeout_ms(timeout))

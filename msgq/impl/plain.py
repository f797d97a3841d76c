"""What the backends that are written in Python have in common. The ring has the same in C, where it must be fast."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any, ClassVar

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

"""Waiting in asyncio, for every backend: all it needs of a socket is `fileno` and a receive that does not wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Any, Protocol

from msgq.errors import ConcurrentUseError, EndpointClosedError


class Readable(Protocol):
    """A subscriber of any backend.

    Attributes
    ----------
    endpoint : for the texts of errors.
    _waiting : the wait of a task for it; else None.
    """

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    _waiting: Wait | None

    def fileno(self) -> int:
        """Readable while a message is there."""

    def receive(self, at_once: Any = ..., /) -> bytes | None:
        """Without waiting: the next message, or None."""


class Pollable(Protocol):
    """A poller of any backend.

    Attributes
    ----------
    _stepped : the last poll was a step of an event-gated run, which is one look and no wait.
    """

    @property
    def _stepped(self) -> bool: ...

    def _subscribers(self) -> list[Any]: ...

    def poll(self, timeout: float) -> list[Any]:
        """See core.pyi."""


class Wait:
    """A task's wait for sockets. A socket that is closed calls it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def __call__(self, endpoint: str) -> None:
        """End it by an error, in its own loop; a loop that is closed has nobody who waits."""
        error = EndpointClosedError("was closed while it was waited for", endpoint)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end, error)

    def wake(self) -> None:
        """End it: there may be something."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


async def receive(socket: Readable, at_once: float = True) -> bytes:
    """Return the next message; see `SubSocket.arecv`. `at_once` is what keeps the kind's `receive` from waiting."""
    while (message := socket.receive(at_once)) is None:
        await readable([socket])
    # No await between taking the message and returning it: a task that is cancelled has not taken one.
    return message


_lines: dict[tuple[int, int], list[object]] = {}  # by queue: receives of this process, in the order in which they began


async def receive_in_turn(queue: Any) -> Any:
    """Return the next message of a work queue; see `MessageQueue.arecv`."""
    if (message := queue.receive(0.0)) is not None:
        return message
    identity, waiting = queue.identity, object()
    line = _lines.setdefault(identity, [])
    line.append(waiting)
    try:
        while True:
            await readable([queue])
            if line[0] is not waiting:
                await asyncio.sleep(0)  # the loop has woken those before this one in the same step
            if (message := queue.receive(0.0)) is not None:
                return message
    finally:
        line.remove(waiting)
        if not line:
            _lines.pop(identity, None)


async def poll(poller: Pollable, timeout: float) -> list[Any]:
    """Return what the poller finds ready, as soon as it does, or `timeout` milliseconds are over (-1: never)."""
    loop = asyncio.get_running_loop()
    sockets = poller._subscribers()
    until = None if timeout < 0 else loop.time() + timeout / 1000
    while not (ready := poller.poll(0)) and sockets and not poller._stepped and (until is None or loop.time() < until):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await readable(sockets)
    return ready


async def readable(sockets: Iterable[Readable]) -> None:
    """Return when one of the sockets may have a message.

    Raises
    ------
    ConcurrentUseError : another task waits for one of them; the loop would silently forget it.
    EndpointClosedError : one of them is closed, also while this waits.
    """
    wait = Wait()
    watched: list[tuple[Readable, int]] = []
    try:
        for socket in sockets:
            if socket._waiting is not None and not socket._waiting.loop.is_closed():
                raise ConcurrentUseError("another task waits for it; a socket serves one at a time", socket.endpoint)
            # A number of our own: the socket's is free as soon as it is closed, the loop's reader only later.
            fd = os.dup(socket.fileno())
            watched.append((socket, fd))
            socket._waiting = wait
            wait.loop.add_reader(fd, wait.wake)
        await wait.future
    finally:
        for socket, fd in watched:
            socket._waiting = None
            wait.loop.remove_reader(fd)
            os.close(fd)

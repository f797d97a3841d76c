"""Waiting in asyncio, for every backend: all it needs of a socket is `fileno` and a receive that does not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from msgq.errors import ConcurrentUseError, EndpointClosedError


class Readable(Protocol):
    """A subscriber of any backend.

    Attributes
    ----------
    endpoint : for the texts of errors.
    _waiting : what to call when the socket is closed, while a task waits for it; else None.
    """

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    _waiting: Callable[[], object] | None

    def fileno(self) -> int:
        """Readable while a message is there."""

    def receive(self, non_blocking: bool = ...) -> bytes | None:
        """Without waiting: the next message, or None."""


SubSocketT = TypeVar("SubSocketT", bound=Readable)


async def receive(socket: Readable) -> bytes:
    """Return the next message; see `SubSocket.arecv`."""
    while (message := socket.receive(True)) is None:
        await readable([socket])
    # No await between taking the message and returning it: a task that is cancelled has not taken one.
    return message


async def poll(sockets: list[SubSocketT], ready: Callable[[], list[SubSocketT]], timeout: float) -> list[SubSocketT]:
    """Return what `ready` finds, as soon as it finds something, or `timeout` milliseconds are over (-1: never)."""
    loop = asyncio.get_running_loop()
    until = None if timeout < 0 else loop.time() + timeout / 1000
    while not (found := ready()) and (until is None or loop.time() < until):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await readable(sockets)
    return found


async def readable(sockets: Iterable[Readable]) -> None:
    """Return when one of the sockets may have a message.

    Raises
    ------
    ConcurrentUseError : another task waits for one of them; the loop would silently forget it.
    EndpointClosedError : one of them is closed, also while this waits.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    watched: list[tuple[Readable, int]] = []
    try:
        for socket in sockets:
            if socket._waiting is not None:
                raise ConcurrentUseError("another task waits for it; a socket serves one at a time", socket.endpoint)
            fd = socket.fileno()
            socket._waiting = partial(loop.call_soon_threadsafe, _fail, future, socket.endpoint)
            watched.append((socket, fd))
            loop.add_reader(fd, _wake, future)
        await future
    finally:
        for socket, fd in watched:
            socket._waiting = None
            loop.remove_reader(fd)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], endpoint: str) -> None:
    if not future.done():
        future.set_exception(EndpointClosedError("was closed while it was waited for", endpoint))

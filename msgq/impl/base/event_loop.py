"""Waiting in asyncio, for every backend: all it needs of a socket is `fileno` and a receive that does not wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Any, Protocol

from msgq.errors import ConcurrentUseError, EndpointClosedError


class AsyncReadable(Protocol):
    """A subscriber of any backend.

    Attributes
    ----------
    endpoint : for the texts of errors.
    _asyncio_wait : the wait of a task for it; else None.
    """

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    _asyncio_wait: AsyncWait | None

    def fileno(self) -> int:
        """Readable while a message is there."""

    def receive(self, at_once: Any = ..., /) -> bytes | None:
        """Without waiting: the next message, or None."""


class AsyncPollable(Protocol):
    """A poller of any backend.

    Attributes
    ----------
    _last_poll_was_step : the last poll was a step of an event-gated run, which is one look and no wait.
    """

    @property
    def _last_poll_was_step(self) -> bool: ...

    def _registered_sockets(self) -> list[Any]: ...

    def poll(self, timeout: float) -> list[Any]:
        """See core.pyi."""


class AsyncWait:
    """A task's wait for sockets. A socket that is closed calls it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def __call__(self, endpoint: str) -> None:
        """End it by an error, in its own loop; a loop that is closed has nobody who waits."""
        error = EndpointClosedError("was closed during the wait", endpoint)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._resolve_future, error)

    def wake(self) -> None:
        """End it: there may be something."""
        self._resolve_future(None)

    def _resolve_future(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


async def receive_async(socket: AsyncReadable, at_once: float = True) -> bytes:
    """Return the next message; see `SubSocket.arecv`. `at_once` is what keeps the kind's `receive` from waiting."""
    while (message := socket.receive(at_once)) is None:
        await wait_readable_async([socket])
    # No await between taking the message and returning it: a task that is cancelled has not taken one.
    return message


#: By queue: the receives of this process, in the order in which they began.
_waiting_receives: dict[tuple[int, int], list[object]] = {}


async def receive_in_turn(queue: Any) -> Any:
    """Return the next message of a work queue; see `MessageQueue.arecv`."""
    if (message := queue.receive(0.0)) is not None:
        return message
    identity, waiting = queue.identity, object()
    receives = _waiting_receives.setdefault(identity, [])
    receives.append(waiting)
    try:
        while True:
            await wait_readable_async([queue])
            if receives[0] is not waiting:
                await asyncio.sleep(0)  # the loop has woken those before this one in the same step
            if (message := queue.receive(0.0)) is not None:
                return message
    finally:
        receives.remove(waiting)
        if not receives:
            _waiting_receives.pop(identity, None)


async def poll_async(poller: AsyncPollable, timeout: float) -> list[Any]:
    """Return what the poller finds ready, as soon as it does, or `timeout` milliseconds are over (-1: never)."""
    loop = asyncio.get_running_loop()
    sockets = poller._registered_sockets()
    until = None if timeout < 0 else loop.time() + timeout / 1000
    while not (ready := poller.poll(0)) and sockets and not poller._last_poll_was_step:
        if until is not None and loop.time() >= until:
            break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await wait_readable_async(sockets)
    return ready


async def wait_readable_async(sockets: Iterable[AsyncReadable]) -> None:
    """Return when one of the sockets may have a message.

    Raises
    ------
    ConcurrentUseError : another task waits for one of them; the loop would silently forget it.
    EndpointClosedError : one of them is closed, also while this waits.
    """
    wait = AsyncWait()
    watched: list[tuple[AsyncReadable, int]] = []
    try:
        for socket in sockets:
            if socket._asyncio_wait is not None and not socket._asyncio_wait.loop.is_closed():
                raise ConcurrentUseError(
                    "another task waits for it; use a socket in one task at a time", socket.endpoint
                )
            # A number of our own: the socket's is free as soon as it is closed, the loop's reader only later.
            fd = os.dup(socket.fileno())
            watched.append((socket, fd))
            socket._asyncio_wait = wait
            wait.loop.add_reader(fd, wait.wake)
        await wait.future
    finally:
        for socket, fd in watched:
            socket._asyncio_wait = None
            wait.loop.remove_reader(fd)
            os.close(fd)

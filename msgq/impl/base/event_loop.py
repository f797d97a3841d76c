"""Waiting in asyncio for all backends. A socket needs only `fileno` and a receive that does not wait."""

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
    endpoint : name for error texts.
    _asyncio_wait : wait of a task for this subscriber; None: no wait.
    """

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    _asyncio_wait: AsyncWait | None

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is available."""

    def receive(self, at_once: Any = ..., /) -> bytes | None:
        """Return the next message without waiting; None: no message."""


class AsyncPollable(Protocol):
    """A poller of any backend.

    Attributes
    ----------
    _last_poll_was_step : True if the last poll was a step of an event-gated run, which checks once without waiting.
    """

    @property
    def _last_poll_was_step(self) -> bool: ...

    def _registered_sockets(self) -> tuple[Any, ...]: ...

    def poll(self, timeout: float) -> list[Any]:
        """See core.pyi."""


class AsyncWait:
    """Wait of a task for sockets. A socket that closes calls the object."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def __call__(self, endpoint: str) -> None:
        """End the wait with an error, in its own loop. If the loop is closed, do nothing."""
        error = EndpointClosedError("was closed during the wait", endpoint)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._resolve_future, error)

    def wake(self) -> None:
        """End the wait, because a message may be available."""
        self._resolve_future(None)

    def _resolve_future(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


async def receive_async(socket: AsyncReadable, at_once: float = True) -> bytes:
    """Return the next message; see `SubSocket.arecv`. `at_once`: argument of `receive` that disables waiting."""
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
    """Return the ready readers, at the latest after `timeout` milliseconds (-1: never)."""
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
    """Wait until one of the sockets may have a message.

    Raises
    ------
    ConcurrentUseError : another task waits for one of the sockets. The loop would silently forget that task.
    EndpointClosedError : a socket is closed, also during the wait.
    """
    wait = AsyncWait()
    watched: list[tuple[AsyncReadable, int]] = []
    try:
        for socket in sockets:
            if socket._asyncio_wait is not None and not socket._asyncio_wait.loop.is_closed():
                raise ConcurrentUseError(
                    "another task waits for this socket; use each socket in one task at a time", socket.endpoint
                )
            # A duplicate, because the loop removes its reader later than the socket closes its descriptor.
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

"""Waiting in asyncio for all backends. A socket needs only `fileno` and a receive that does not wait."""

import asyncio
from collections.abc import Iterable
from typing import Any, Self, final

from msgq.impl.sockets.async_receiver import AsyncReadable

@final
class LoopReader:
    """A socket's descriptor in an event loop.

    Args:
        loop: the running loop.
        socket: the subscriber, to which the reader keeps no reference.
    """

    def __new__(cls, loop: asyncio.AbstractEventLoop, socket: AsyncReadable) -> Self: ...
    def close(self, endpoint: str) -> None:
        """Leave the loop, from any thread. A task that waits gets `EndpointClosedError`."""

async def receive_async(socket: AsyncReadable, at_once: float = True) -> bytes:
    """Return the next message; see `SubSocket.arecv`. `at_once`: argument of `receive` that disables waiting."""

async def receive_in_turn(queue: Any) -> Any:
    """Return the next message of a work queue; see `MessageQueue.arecv`."""

async def poll_async(poller: Any, timeout: float) -> list[Any]:
    """Return what the `poll` of any backend's poller returns, after at most `timeout` milliseconds (-1: no limit)."""

async def wait_readable_async(sockets: Iterable[AsyncReadable], until: float = ...) -> None:
    """Wait until one of the sockets may have a message, at the latest until a time of the loop.

    The sockets have no message: a receive or a poll has just found none.

    Raises:
        ConcurrentUseError: another task waits for one of the sockets. One message would wake only one of them.
        EndpointClosedError: a socket is closed, also during the wait.
    """

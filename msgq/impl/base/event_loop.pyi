"""Waiting in asyncio for all backends. A socket needs only `fileno` and a receive that does not wait."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol, final

class AsyncReadable(Protocol):
    """A subscriber of any backend.

    Attributes
    ----------
    endpoint : name for error texts.
    _asyncio_reader : the subscriber's descriptor in an event loop; None: no task has waited for it.
    """

    @property
    def endpoint(self) -> str: ...

    _asyncio_reader: LoopReader | None

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

@final
class LoopReader:
    """A socket's descriptor in an event loop.

    Parameters
    ----------
    loop : the running loop.
    socket : the subscriber, to which the reader keeps no reference.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: AsyncReadable) -> None: ...
    def close(self, endpoint: str) -> None:
        """Leave the loop, from any thread. A task that waits gets `EndpointClosedError`."""

async def receive_async(socket: AsyncReadable, at_once: float = True) -> bytes:
    """Return the next message; see `SubSocket.arecv`. `at_once`: argument of `receive` that disables waiting."""

async def receive_in_turn(queue: Any) -> Any:
    """Return the next message of a work queue; see `MessageQueue.arecv`."""

async def poll_async(poller: AsyncPollable, timeout: float) -> list[Any]:
    """Return the ready readers, at the latest after `timeout` milliseconds (-1: never)."""

async def wait_readable_async(sockets: Iterable[AsyncReadable], until: float = ...) -> None:
    """Wait until one of the sockets may have a message, at the latest until a time of the loop.

    The sockets have no message: a receive or a poll has just found none.

    Raises
    ------
    ConcurrentUseError : another task waits for one of the sockets. One message would wake only one of them.
    EndpointClosedError : a socket is closed, also during the wait.
    """

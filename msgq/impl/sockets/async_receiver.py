"""asyncio methods of sockets written in Python. asyncio is imported at its first use."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing import Protocol

    from msgq.impl.base.event_loop import LoopReader

    class AsyncReadable(Protocol):
        """A subscriber of any backend.

        Attributes:
            endpoint: name for error texts.
            _asyncio_reader: the subscriber's descriptor in an event loop; None: no task has waited for it.
        """

        _asyncio_reader: LoopReader | None

        @property
        def endpoint(self) -> str: ...  # noqa: D102

        def fileno(self) -> int:
            """Return a descriptor that is readable while a message is available."""

        def receive(self, at_once: Any = ..., /) -> bytes | None:
            """Return the next message without waiting; None: no message."""


class AsyncReceiver:
    """A subscriber with asyncio methods. The ring's core.pyi documents `areceive`."""

    __slots__ = ()

    def arecv(self: AsyncReadable) -> Coroutine[Any, Any, bytes]:
        """Do what `areceive` does (compatibility: pyzmq's name)."""
        from msgq.impl.base import event_loop

        return event_loop.receive_async(self)

    def areceive(self) -> Coroutine[Any, Any, Any]:
        """Return the next message, in a task of an asyncio loop."""
        return self.arecv()  # type: ignore[misc]  # it is one

    def __aiter__(self) -> Self:
        return self

    def __anext__(self: AsyncReadable) -> Coroutine[Any, Any, bytes]:
        from msgq.impl.base import event_loop

        return event_loop.receive_async(self)

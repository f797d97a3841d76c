"""pyzmq's names for methods of sockets, so that programs for pyzmq run unchanged."""

from __future__ import annotations

import builtins
import functools
import sys

from msgq.errors import Again
from msgq.impl.base.argument_checks import (
    check_linger,
    check_sndhwm,
    check_sndtimeo,
    option_error,
    parse_receive_flags,
)

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, Literal, Protocol, overload

    class NamedSocket(Protocol):
        """A socket of any backend."""

        @property
        def endpoint(self) -> str: ...  # noqa: D102

    class ReceivingSocket(NamedSocket, Protocol):
        """A subscriber of any backend."""

        def receive(self, non_blocking: bool = ...) -> bytes | None:
            """See the ring's core.pyi."""

        def receive_into(self, buffer: Any, non_blocking: bool = ...) -> int | None:
            """See the ring's core.pyi."""

        def setTimeout(self, timeout: float) -> None:
            """See the ring's core.pyi."""


def make_again_error(endpoint: str) -> Again:
    """Return the error for a receive without a message. If zmq is imported, the error is also a `zmq.Again`."""
    # A program that writes `except zmq.Again` has imported zmq; no other needs to.
    zmq_again = getattr(sys.modules.get("zmq"), "Again", None)
    error_class = Again if zmq_again is None else _make_combined_again(zmq_again)
    return error_class("no message available before the timeout", endpoint)


@functools.cache
def _make_combined_again(zmq_again: Any) -> type[Again]:
    class CombinedAgain(Again, zmq_again):  # type: ignore[misc]
        """An error that is both `msgq.Again` and `zmq.Again`."""

        def __init__(self, message: str, endpoint: str) -> None:
            super().__init__(message, endpoint)
            self.strerror = str(Again(message, endpoint))  # this is the text, to zmq.Again

        def __reduce__(self) -> tuple[Any, ...]:
            return make_again_error, (self.endpoint,)

    return CombinedAgain


class Frame(bytes):
    """A message as `recv(copy=False)` returns it: bytes, with the attributes of pyzmq's Frame."""

    __slots__ = ()

    @property
    def bytes(self) -> builtins.bytes:
        """The message as plain bytes."""
        return builtins.bytes(self)

    @property
    def buffer(self) -> memoryview:
        """The message as a memoryview."""
        return memoryview(self)


class StrictOptionSocket:
    """A socket written in Python that refuses unknown attributes. Cython classes do so anyway."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            raise option_error(self, name, self.endpoint) from None  # type: ignore[attr-defined]  # of the socket


class UnqueuedSenderOptions:
    """pyzmq's options of a sender without a queue: `send` delivers messages before it returns."""

    __slots__ = ()

    @property
    def sndhwm(self) -> int:
        """Limit of waiting messages (compatibility: pyzmq's name). Always 0 (no limit), because no message waits."""
        return 0

    @sndhwm.setter
    def sndhwm(self: NamedSocket, messages: int) -> None:
        check_sndhwm(messages, self.endpoint)

    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait (compatibility: pyzmq's name). Always 0, because a send never waits."""
        return 0

    @sndtimeo.setter
    def sndtimeo(self: NamedSocket, milliseconds: int) -> None:
        check_sndtimeo(milliseconds, self.endpoint)


class NoLingerOption:
    """pyzmq's option `linger` for sockets without a queue: `send` delivers messages before it returns."""

    __slots__ = ()

    @property
    def linger(self) -> int:
        """Milliseconds for unsent messages after `close` (compatibility: pyzmq's name). Always 0."""
        return 0

    @linger.setter
    def linger(self: NamedSocket, milliseconds: int) -> None:
        check_linger(milliseconds, self.endpoint)


class PyzmqReceiver:
    """pyzmq's names for the methods of a subscriber written in Python."""

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def recv(self: ReceivingSocket, flags: int = 0, copy: Literal[True] = True) -> bytes: ...
        @overload
        def recv(self: ReceivingSocket, flags: int = 0, *, copy: Literal[False]) -> Frame: ...
        @overload
        def recv(self: ReceivingSocket, flags: int = 0, copy: bool = True) -> bytes | Frame: ...

    def recv(self: ReceivingSocket, flags: int = 0, copy: bool = True) -> bytes | Frame:
        """Return the next message, with copy=False as a `Frame` (compatibility: pyzmq's name).

        Raises `Again` without a message (flags=NOBLOCK), or at the timeout.
        """
        message = self.receive(parse_receive_flags(flags, self.endpoint))
        if message is None:
            raise make_again_error(self.endpoint)
        return message if copy else Frame(message)

    def recv_into(self: ReceivingSocket, buffer: Any, flags: int = 0) -> int:
        """Receive the next message into the caller's memory, and return its size (compatibility: pyzmq's name)."""
        size = self.receive_into(buffer, parse_receive_flags(flags, self.endpoint))
        if size is None:
            raise make_again_error(self.endpoint)
        return size

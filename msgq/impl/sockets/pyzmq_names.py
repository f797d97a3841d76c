"""pyzmq's names for what sockets do anyway, so that programs written for pyzmq run."""

from __future__ import annotations

import builtins
import functools
import sys

from msgq.errors import Again
from msgq.impl.base.argument_checks import NOBLOCK, check_linger, check_sndhwm, check_sndtimeo, option_error

TYPE_CHECKING = False  # as in msgq/__init__.py
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
    """Return the error for a receive that found nothing. Where zmq is imported, it is a `zmq.Again` as well."""
    # A program that writes `except zmq.Again` has imported zmq; no other needs to.
    zmq_again = getattr(sys.modules.get("zmq"), "Again", None)
    error_class = Again if zmq_again is None else _make_combined_again(zmq_again)
    return error_class("no message available before the timeout", endpoint)


@functools.cache
def _make_combined_again(zmq_again: Any) -> type[Again]:
    class CombinedAgain(Again, zmq_again):  # type: ignore[misc]
        """`msgq.Again` and `zmq.Again` at once."""

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
    """A socket that is written in Python, and refuses attributes that it does not have. (The others do in Cython.)"""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            raise option_error(self, name, self.endpoint) from None  # type: ignore[attr-defined]  # of the socket


class UnqueuedSenderOptions:
    """pyzmq's options of a sender whose messages have arrived when `send` returns. (The ring's has its own.)"""

    __slots__ = ()

    @property
    def sndhwm(self) -> int:
        """Messages that wait to be sent, at most (compatibility: pyzmq's name): 0 (no limit), whatever is set.

        None waits.
        """
        return 0

    @sndhwm.setter
    def sndhwm(self: NamedSocket, messages: int) -> None:
        check_sndhwm(messages, self.endpoint)

    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait (compatibility: pyzmq's name): 0, whatever is set. A send never waits."""
        return 0

    @sndtimeo.setter
    def sndtimeo(self: NamedSocket, milliseconds: int) -> None:
        check_sndtimeo(milliseconds, self.endpoint)


class NoLingerOption:
    """pyzmq's `linger`, where what was sent has arrived when `send` returns. (The ring's sockets have their own.)"""

    __slots__ = ()

    @property
    def linger(self) -> int:
        """Milliseconds that messages may take after `close` (compatibility: pyzmq's name): 0, whatever is set."""
        return 0

    @linger.setter
    def linger(self: NamedSocket, milliseconds: int) -> None:
        check_linger(milliseconds, self.endpoint)


class PyzmqReceiver:
    """pyzmq's names for what a subscriber that is written in Python does. (Those of the ring have their own.)"""

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

        `Again` when there is none (flags=NOBLOCK), or none came in time.
        """
        message = self.receive(bool(flags & NOBLOCK))
        if message is None:
            raise make_again_error(self.endpoint)
        return message if copy else Frame(message)

    def recv_into(self: ReceivingSocket, buffer: Any, flags: int = 0) -> int:
        """Do the same into memory of the caller's (compatibility: pyzmq's name), and return the message's size."""
        size = self.receive_into(buffer, bool(flags & NOBLOCK))
        if size is None:
            raise make_again_error(self.endpoint)
        return size

"""pyzmq's option `linger` of publishers and subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import zmq

from msgq.impl.base.argument_checks import check_linger

_T = TypeVar("_T")


class LingerOption:
    """A socket with the option `linger`, which may be set at any time. See the ring's core.pyi."""

    __slots__ = ()

    if TYPE_CHECKING:  # attributes of the guard and of the socket
        endpoint: str
        closed: bool
        _socket: zmq.Socket[bytes]
        _linger_ms: int

        def _call_exclusively(self, call: Callable[..., _T], *args: Any) -> _T: ...
        def _is_open_here(self) -> bool: ...

    @property
    def linger(self) -> int:
        """Milliseconds for unsent messages after `close` or exit (compatibility: pyzmq's name); -1: forever."""
        return self._linger_ms

    @linger.setter
    def linger(self, milliseconds: int) -> None:
        checked = check_linger(milliseconds, self.endpoint)
        if not self.closed:
            self._call_exclusively(
                lambda: self._socket.set(zmq.LINGER, checked)
            )  # in a forked child, the socket is a new one
        self._linger_ms = checked  # type: ignore[misc]  # a slot of the class that derives from this

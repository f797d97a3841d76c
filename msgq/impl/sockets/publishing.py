"""Common parts of publishers. The ring implements reservations and batches in C for speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf, isinf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.errors import MsgqError, StateError, WaitTimeoutError
from msgq.impl.base.argument_checks import check_wait_for_readers
from msgq.impl.base.core import copy_message

if TYPE_CHECKING:
    from msgq.impl.base.core import Bus


def wait_for_readers(
    count_readers: Callable[[], tuple[int, int | None]],
    timeout: float | None,
    interval: float,
    n: int | None,
    endpoint: str,
    bus: Bus | None = None,
) -> None:
    """Wait until subscribers are connected or up to date; see the ring's core.pyi.

    Args:
        count_readers: returns the number of attached subscribers, and the number of up-to-date subscribers; None:
            unknown.
        bus: the bus that waits in virtual time; None: shared memory.

    Raises:
        WaitTimeoutError: the timeout passed.
        InvalidValueError: as `check_wait_for_readers`.
    """
    check_wait_for_readers(timeout, interval, n, endpoint)
    if bus is not None:
        _wait_on_bus(bus, lambda: has_enough_readers(*count_readers(), n), timeout, endpoint)
        deadline = 0.0
    else:
        deadline = inf if timeout is None else time.monotonic() + timeout
    while not has_enough_readers(*(counts := count_readers()), n):
        if time.monotonic() >= deadline:
            raise missing_readers_error(*counts, timeout, n, endpoint)
        time.sleep(interval)


def _wait_on_bus(bus: Bus, are_ready: Callable[[], bool], timeout: float | None, endpoint: str) -> None:
    def is_over() -> bool:
        try:
            return are_ready()
        except MsgqError:  # another node has closed the publisher: the waiting node raises the error
            return True

    if not are_ready() and timeout != 0:
        timeout_ns = None if timeout is None or isinf(timeout) else round(timeout * NS_PER_S)
        bus.wait_until(is_over, timeout_ns, f"readers of {endpoint!r}")


def has_enough_readers(attached: int, updated: int | None, n: int | None) -> bool:
    """Return True if `n` subscribers are attached; without `n`, if there are subscribers and all are up to date."""
    return 0 < attached == updated if n is None else attached >= n


def missing_readers_error(
    attached: int, updated: int | None, timeout: float | None, n: int | None, endpoint: str
) -> WaitTimeoutError:
    """Return the error for subscribers that are missing at the timeout."""
    text = f"after {timeout} s, {format_count_noun(attached, 'subscriber')} attached"
    if n is not None:
        text += f", {n} requested"
    elif updated is None:
        text += "; ZMQ does not report what was read, so give n="
    else:
        text += f", {updated} of them up to date"
    return WaitTimeoutError(text, endpoint)


def split_messages(messages: Any, endpoint: str) -> Iterable[Any]:
    """Return the messages for `send_many`: an iterable unchanged, or the rows of an array as bytes.

    Raises:
        TypeError: a single message, or neither an iterable nor an array.
        BufferError: the array is not C-contiguous.
    """
    message_iterable: Iterable[Any] = messages
    if isinstance(messages, (list, tuple, Iterator)):
        return message_iterable
    try:
        view = memoryview(messages)
    except TypeError:  # no buffer, so it must be an iterable
        return message_iterable
    except ValueError:  # NumPy exports datetimes only without their type
        view = memoryview(messages.view(f"V{messages.itemsize}"))
    if view.ndim == 0 or (view.ndim == 1 and view.itemsize == 1):
        raise TypeError("send_many needs several messages, but got one bytes object; use send, or an array of rows")
    if not view.c_contiguous:
        raise BufferError("rows of the array are not contiguous in memory; give a C-contiguous copy")
    data, count = copy_message(messages, endpoint, can_have_schema=True), len(view)
    size = len(data) // count if count else 0
    return [data[i * size : (i + 1) * size] for i in range(count)]


class ReservingPublisher(Protocol):
    """A publisher with reservations for writing messages in place."""

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    def send(self, data: Any, /, *, origin_time: int = ...) -> None:
        """See the ring's core.pyi."""

    def _begin_reservation(self, size: int) -> None:
        """Exclude other users until the end, if a message of this size may be sent."""

    def _end_reservation(self) -> None:
        """Allow other users again."""


class Reservation:
    """A reservation for writing one message in place: ``with pub.reserve(size) as view``. Use it once."""

    def __init__(self, socket: ReservingPublisher, size: int, origin_time: int = 0) -> None:
        self._socket, self._size, self._origin_time = socket, size, origin_time
        self._buffer: bytearray | None = None

    def __enter__(self) -> memoryview:
        if self._buffer is not None:
            raise StateError("reservation was already used; reserve again", self._socket.endpoint)
        self._socket._begin_reservation(self._size)
        try:
            self._buffer = bytearray(self._size)
        except BaseException:
            self._socket._end_reservation()
            raise
        self._view = memoryview(self._buffer)
        return self._view

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with suppress(BufferError):  # an array made from it still lives
            self._view.release()
        self._socket._end_reservation()
        if kind is None and self._buffer is not None:
            self._socket.send(self._buffer, origin_time=self._origin_time)

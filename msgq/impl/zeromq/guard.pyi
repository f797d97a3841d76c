"""Guards for sockets of another library: one thread at a time, in the process that connected."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy.typing as npt
from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from msgq.impl.base.core import Context, ForkAwareHandle

_T = TypeVar("_T")

@disjoint_base
class SocketGuard(ForkAwareHandle):
    """Base of the guards of publishers and subscribers.

    All code that uses the ZMQ socket runs in `_call_exclusively`, or in another method of these classes. Derived
    classes define two methods. `_close_zmq_sockets` closes the ZMQ socket. `_connect_in_this_process` creates another
    ZMQ socket in a forked child. At its end, the method calls `_mark_open`.
    """

    def _check_connectable(self, context: Context, name: str) -> None:
        """Raise an error if the context is terminated or the socket is connected.

        Otherwise store the endpoint's name.
        """

    def _mark_open(self, call: Callable[..., Any], would_block: type[BaseException]) -> None:
        """Open the guard.

        `call` sends or receives. If `call` would block, `call` raises the exception `would_block`.
        """

    def _is_open_here(self) -> bool:
        """True if the socket is connected in this process."""

    def _check_open(self) -> None:
        """If the socket must not be used, raise EndpointClosedError or ConcurrentUseError.

        In a forked child, connect again.
        """

    def _call_exclusively(self, call: Callable[..., _T], *args: Any) -> _T:
        """Check the guard, and run `call` while no other thread can use the socket.

        Raises:
            EndpointClosedError: another thread or a signal handler called `close` during the call, so the socket is
                closed.
        """

    def _sleep_on_descriptors(self, descriptors: list[int], deadline_ns: int, max_sleep_ms: int) -> bool:
        """Sleep until one of the descriptors may be readable. The call does not use the ZMQ socket.

        The caller has acquired the guard.

        Args:
            deadline_ns: nanoseconds of CLOCK_MONOTONIC; negative: none.
            max_sleep_ms: maximum duration of the call in milliseconds, at least 1.

        Returns:
            True if the caller should check for a message again. False at the deadline.

        Raises:
            ForkedSocketError: a signal handler forked, and this is the child.
            IpcError: the system call failed.
        """

    def _mark_reserved(self) -> None:
        """Check the guard, and exclude other threads until the reservation ends."""

    def _end_reservation(self) -> None:
        """End the reservation.

        Raises:
            ForkedSocketError: the reservation belongs to the parent.
            EndpointClosedError: the socket was closed.
        """

    def _wake_waiting_thread(self) -> None:
        """End a wait of another thread for a message. A socket that only sends has no such wait."""

    def _close_and_release(self) -> None:
        """Close the ZMQ socket, which no other thread can use."""

def keep_forever(inherited: object) -> None:
    """Keep an object alive until the process ends, also while the interpreter shuts down.

    The function is used for ZMQ objects in a forked child, because their destructors must not run in the child.
    """

def call_all_exclusively(guards: list[Any], call: Callable[..., _T], *args: Any) -> _T:
    """Do the same as `_call_exclusively` while all given guards are held."""

@disjoint_base
class GuardedSender(SocketGuard):
    """A publisher's guard.

    Derived classes have `_poll_subscriptions`, called at the first and every 1024th send, and `_send_past_full_queues`.

    Attributes:
        _message_bytes_max: maximum bytes of a message; 0: no limit.
    """

    _sent_count: int
    _sent_bytes: int
    _message_bytes_max: int

    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, flags: int = 0, copy: bool = True, *, origin_time: int = 0
    ) -> None:
        """Publish one message.

        Args:
            data: any object with contiguous bytes. `send` copies the bytes, so you may change `data` afterwards.
            flags: 0 or NOBLOCK; both values have the same effect (compatibility: pyzmq). Other flags raise
                `InvalidValueError`.
            copy: ignored; `data` is always copied (compatibility: pyzmq).
            origin_time: must be 0, because messages have no timestamps here. Other values raise `StateError`.

        Raises:
            TypeError, BufferError: `data` has no contiguous bytes.
            MessageTooLargeError: the message exceeds the limit of subscribers (MSGQ_ZMQ_MAX_BYTES).

        Notes:
            `send` never waits for subscribers. If a message does not fit into a subscriber's queue, the message is
            dropped and counted (see `stats`). The GIL is released during the copy and the queueing of the message.
        """

    def _count_exclusively(self, count_readers: Callable[[], int]) -> int:
        """Do the same as `_call_exclusively` for a count of subscribers, which `close` ends as it ends their wait."""

    def close(self) -> None:
        """Leave the topic. A thread that waits for subscribers gets `EndpointClosedError`.

        After `close`, ZMQ sends unsent messages in the background for up to 1 s. A second close has no effect.

        Raises:
            ConcurrentUseError: another thread sends.
        """

@disjoint_base
class GuardedReceiver(SocketGuard):
    """A subscriber's guard.

    Derived classes define three methods. `_receive_next` receives and handles all cases. This method is not called if
    `_receives_directly` is set. `_wake_waiting_thread` ends a wait of another thread. `_reconnect_if_lost` is called
    before a wait if no message is available. The method returns the milliseconds until its next call, at least 1.

    Attributes:
        _timeout_ms: milliseconds that a receive waits; -1 forever.
        _zmq_fd: descriptor passed to `_mark_open`.
    """

    _receives_directly: bool
    _received_count: int
    _timeout_ms: int
    _zmq_fd: int

    # All callers know the class of their socket.
    def _mark_open(self, call: Callable[..., Any], would_block: type[BaseException], zmq_fd: int) -> None:  # type: ignore[override]
        """Do the same as `SocketGuard._mark_open`. `zmq_fd` becomes readable when `call` may find a message."""

    def _receive_one(self, non_blocking: bool) -> bytes:
        """Return the next message, waiting up to the timeout.

        Raises `would_block`. The caller has acquired the guard.
        """

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if the socket conflates. Waits at most `timeout` seconds.

        Args:
            non_blocking: do not wait, whatever the timeout.
            timeout: seconds to wait, 0 to 2147483; None: the value of `setTimeout`, forever by default.

        Returns:
            The message, or None at the timeout. If another program sends a multipart message, each part is returned as
            a separate message.

        Notes:
            Sleeps with the GIL released. Signal handlers run, and an exception of a handler ends the wait. If a handler
            forks, the wait in the child raises `ForkedSocketError`, and the wait in the parent continues.
        """

    def close(self) -> None:
        """Leave the topic. A thread that waits gets `EndpointClosedError`. A second close has no effect."""

"""The way into a socket that belongs to another library: one thread at a time, in the process that connected."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy.typing as npt
from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from msgq.impl.base.core import Context, ForkAwareHandle

_T = TypeVar("_T")

@disjoint_base
class SocketGuard(ForkAwareHandle):
    """What publishers and subscribers have in common.

    Code that touches the foreign socket is called by `_call_exclusively` or by a method of these classes. Derived
    classes define two methods. `_close_zmq_sockets` closes the foreign socket. `_connect_in_this_process` makes another
    one in a forked child and ends with `_mark_open`.
    """

    def _check_connectable(self, context: Context, name: str) -> None:
        """Refuse to connect with a terminated context, or twice; else take the endpoint's name."""

    def _mark_open(self, call: Callable[..., Any], would_block: type[BaseException]) -> None:
        """Let calls through from now on; `call` is what sends or receives, `would_block` what it raises to say that."""

    def _is_open_here(self) -> bool:
        """Whether the socket is connected, and of this process."""

    def _check_open(self) -> None:
        """Raise EndpointClosedError or ConcurrentUseError if the socket may not be used; connect again after a fork."""

    def _call_exclusively(self, call: Callable[..., _T], *args: Any) -> _T:
        """Check, and call while everybody else is kept out.

        Raises EndpointClosedError when another thread, or a signal handler, called `close` meanwhile: it is done now.
        """

    def _sleep_on_descriptors(self, descriptors: list[int], deadline_ns: int, max_sleep_ms: int) -> bool:
        """Sleep until one of the descriptors may be readable; the foreign socket is not touched. The ticket is ours.

        Parameters
        ----------
        deadline_ns : on CLOCK_MONOTONIC, in nanoseconds; negative is never.
        max_sleep_ms : milliseconds after which to look again in any case, at least 1.

        Returns
        -------
        True: look again, which may be in vain. False: the deadline is over.

        Raises
        ------
        ForkedSocketError : a signal handler forked, and this is the child.
        IpcError : the system cannot wait.
        """

    def _mark_reserved(self) -> None:
        """Check, and keep everybody else out until the reservation ends."""

    def _end_reservation(self) -> None:
        """Let others in again.

        Raises
        ------
        ForkedSocketError : the reservation is the parent's. EndpointClosedError : the socket was closed.
        """

    def _close_and_release(self) -> None:
        """Close; the foreign socket is ours alone."""

def keep_forever(inherited: object) -> None:
    """Keep an object for as long as the process lives, also while the interpreter takes its modules down.

    For objects of ZMQ in a forked child: their destructors must not run there.
    """

def call_all_exclusively(guards: list[Any], call: Callable[..., _T], *args: Any) -> _T:
    """Do what `_call_exclusively` does with several guards at once."""

@disjoint_base
class GuardedSender(SocketGuard):
    """A publisher's guard.

    Derived classes have `_poll_subscriptions`, called at the first and every 1024th send, and `_send_past_full_queues`.

    Attributes
    ----------
    _message_bytes_max : of a message; 0: no limit.
    """

    _sent_count: int
    _sent_bytes: int
    _message_bytes_max: int

    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, flags: int = 0, copy: bool = True, *, origin_time: int = 0
    ) -> None:
        """Publish one message.

        Parameters
        ----------
        data : anything with contiguous bytes. It is copied, so it may change as soon as this returns.
        flags : pyzmq's: 0 or NOBLOCK, which are the same. `InvalidValueError` for others, as SNDMORE.
        copy : pyzmq's; `data` is copied in any case.
        origin_time : 0: messages carry no times here. `StateError` for others.

        Raises
        ------
        TypeError, BufferError : `data` has no contiguous bytes.
        MessageTooLargeError : it is larger than subscribers take (MSGQ_ZMQ_MAX_BYTES).

        Notes
        -----
        Never waits for subscribers: what does not fit a queue is counted, see `stats`. Releases the GIL while the
        message is copied and queued.
        """

    def close(self) -> None:
        """Leave. What was sent has 1 s to arrive, in the background. Closing twice does nothing.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a send.
        """

@disjoint_base
class GuardedReceiver(SocketGuard):
    """A subscriber's guard.

    Derived classes define three methods. `_receive_next` receives with everything considered; it is called unless
    `_receives_directly` is set. `_wake_waiting_thread` ends a wait of another thread. `_reconnect_if_lost` is called
    before a wait when there is no message; it returns the milliseconds until the next call, at least 1.

    Attributes
    ----------
    _timeout_ms : milliseconds that a receive waits; -1 for ever.
    _zmq_fd : the descriptor that was given to `_mark_open`.
    """

    _receives_directly: bool
    _received_count: int
    _timeout_ms: int
    _zmq_fd: int

    # Nobody opens a socket without knowing which one it is.
    def _mark_open(self, call: Callable[..., Any], would_block: type[BaseException], zmq_fd: int) -> None:  # type: ignore[override]
        """Do what `SocketGuard._mark_open` does; `zmq_fd` becomes readable when `call` may find a message."""

    def _receive_one(self, non_blocking: bool) -> bytes:
        """Return the next message, waiting as long as the time-out says; raises `would_block`. The ticket is ours."""

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if the socket conflates; waits at most `timeout` seconds.

        Parameters
        ----------
        non_blocking : do not wait, whatever the time-out.
        timeout : seconds to wait, 0 to 2147483; None: as `setTimeout` says, without end unless it was called.

        Returns
        -------
        The message, or None when there was none in time. Each part of a multipart message of a foreign publisher is a
        message here.

        Notes
        -----
        Sleeps with the GIL released; Python's signal handlers run, and what they raise ends the wait. A handler that
        forks ends the child's wait with `ForkedSocketError`; the parent's goes on.
        """

    def close(self) -> None:
        """Leave. Ends a wait of another thread, which gets `EndpointClosedError`. Closing twice does nothing."""

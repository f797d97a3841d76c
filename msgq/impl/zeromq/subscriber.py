"""The subscriber's socket, a SUB that takes everything, and the poller."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import zmq

from msgq.common import naming, settings
from msgq.common.stats.topic import SubscriberStats, Tracked
from msgq.common.units import NS_PER_MS
from msgq.errors import InvalidValueError, MessageSizeError, MessageTooLargeError
from msgq.impl.base.argument_checks import (
    check_before_connect,
    check_linger,
    check_non_blocking,
    check_rcvhwm,
    no_tracking_error,
    timeout_ms,
)
from msgq.impl.base.core import Context
from msgq.impl.sockets.async_receiver import AsyncReceiver
from msgq.impl.sockets.polling import PythonPoller, PyzmqPoller
from msgq.impl.sockets.pyzmq_names import PyzmqReceiver
from msgq.impl.zeromq import process
from msgq.impl.zeromq.addresses import Address, subscriber_address
from msgq.impl.zeromq.curve import secure_subscriber
from msgq.impl.zeromq.descriptor import PAST_TIME_NS, LoopDescriptor
from msgq.impl.zeromq.guard import Receiver, all_exclusive
from msgq.impl.zeromq.linger import LingerOption

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import WriteableBuffer

    from msgq.impl.base.event_loop import Wait

RECONNECT_MS = 10  # after the first failure; then twice as long each time, up to:
RECONNECT_MAX_MS = 100
RECONNECT_AFTER_MS = 50  # after a connection has ended; ZMQ tries again before that, if it does
MAX_SLEEP_MS = 1000  # how long a sleep may last: a signal that came just before it is heard then
NOBLOCK = int(zmq.NOBLOCK)  # a plain number: pyzmq's own is an enum, which costs
BATCH_MAX = 100_000  # messages; taking "all" ends there, so that it ends however fast they come


_wake_numbers = itertools.count()


class SubSocket(AsyncReceiver, PyzmqReceiver, LingerOption, Receiver):
    """Receives the messages of one endpoint.

    It gets what is published after its subscription has reached the publisher, which `connect` does not wait for (the
    publisher can: `wait_for_readers`). Messages are lost when the queues between the two are full, and between two
    publishers; nobody here is told how many. One that arrives is never torn, repeated, or out of order.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`, except in `close`. After a fork the
    child's socket connects again at its first call, and receives what is published after that; the parent's continues.
    The methods that receive raise `EndpointClosedError` when the socket is closed or was never connected. A socket that
    is deleted, or still open when the process ends, is closed.
    """

    __slots__ = (
        "_address",
        "_conflate",
        "_conflate_default",
        "_linger_ms",
        "_loop_fd",
        "_monitor",
        "_rcvhwm",
        "_reconnect_at",
        "_recv",
        "_skipped",
        "_socket",
        "_unread",
        "_waiting",
        "_wake_address",
    )

    _socket: zmq.Socket[bytes]
    _monitor: zmq.Socket[bytes]
    _recv: Callable[..., bytes]
    _address: Address

    def __init__(self) -> None:
        self._conflate = self._conflate_default = False  # as it is, and as it was set before connect
        self._rcvhwm: int | None = None  # None: from the environment
        self._linger_ms = 0
        self._unread: bytes | None = None  # a message that did not suit the call that took it
        self._skipped = 0
        self._reconnect_at = 0  # monotonic nanoseconds; 0: the connection has not ended, or ZMQ has another one
        self._wake_address = ""
        self._waiting: Wait | None = None
        self._loop_fd: LoopDescriptor | None = None

    def __del__(self) -> None:
        if self._is_here():
            self._leave()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._received} messages received"
        return f"<msgq SubSocket {self.endpoint!r}, {state}>"

    @property
    def conflate(self) -> bool:
        """Whether `receive` passes over all but the newest message."""
        return self._conflate

    @conflate.setter
    def conflate(self, value: bool) -> None:
        check_before_connect("conflate", self.closed, self.endpoint)
        self._conflate = self._conflate_default = bool(value)

    @property
    def lost(self) -> int | None:
        """Messages that a conflating socket passed over; what was lost on the way is not in it. None: unknown."""
        return self._skipped if self._conflate else None

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        passive: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Subscribe from now on. There need not be a publisher; who comes later is found within 0.1 s.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        address : the publisher's host, for tcp.
        conflate : receive the newest message only.
        segment_size, mode, passive, spin_us, trust : for the ring; this backend does not look at them.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint, or its socket file would have too long a path.
        StateError : the context was terminated, or the socket is connected.
        InvalidValueError : the address is no host, or the environment makes no sense.
        """
        name = naming.validate_endpoint_name(endpoint)
        self._check_connectable(context, name)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"an address is str or bytes, not {type(address).__name__}")
        host = address.decode(errors="replace") if isinstance(address, bytes) else address
        with settings.overrides(prefix):
            self._address = subscriber_address(name, host)
        self._conflate = bool(conflate) or self._conflate_default
        self._connect_again()

    def _connect_again(self) -> None:
        """Connect to the address, also in a forked child."""
        name = self.endpoint
        self._wake_address = f"inproc://msgq-wake-{next(_wake_numbers)}"
        socket = process.new_socket(zmq.SUB, name, settings.get_zmq_max_bytes(name))
        try:
            self._set_up(socket)
        except BaseException as error:
            socket.close()
            if isinstance(error, zmq.ZMQError):
                text = f"cannot connect to {self._address.uri}: {error}"
                raise InvalidValueError(text, name, error.errno) from error
            raise
        self._socket, self._recv = socket, socket.recv
        self._reconnect_at = 0
        self._unread, self._skipped = None, 0
        self._simplify()
        # ZMQ's descriptor tells that there is something new, and no more once that was looked at.
        self._open(self._recv, zmq.Again, int(socket.get(zmq.FD)))
        process.remember(self)

    def _set_up(self, socket: zmq.Socket[bytes]) -> None:
        socket.linger = self._linger_ms
        socket.rcvhwm = self.rcvhwm
        socket.reconnect_ivl, socket.reconnect_ivl_max = RECONNECT_MS, RECONNECT_MAX_MS
        if ":" in self._address.host:
            socket.ipv6 = True
        secure_subscriber(socket, self.endpoint)
        socket.subscribe(b"")
        self._monitor = process.new_monitor(socket, self.endpoint)
        socket.bind(self._wake_address)
        socket.connect(self._address.uri)

    def _wake(self) -> None:
        """End a wait of another thread, which alone may touch the socket: send it a message from beside."""
        with process.new_socket(zmq.PUSH, self.endpoint) as push:
            push.connect(self._wake_address)
            push.send(b"", NOBLOCK)

    def _reconnect_if_lost(self) -> int:
        """Connect again if ZMQ gave the publisher up. There was no message, and the ticket is ours.

        ZMQ gives up without a word, and for ever, when it hangs up on a publisher that sends what is not its protocol,
        or announces too large a message. Else it connects again by itself, which its monitor tells when it succeeds. A
        connection that ended, and has no successor after `RECONNECT_AFTER_MS`, may be of either kind; in both it does
        no harm to connect anew.

        Returns
        -------
        Milliseconds until this wants to be called again, at least 1.
        """
        if self._reconnect_at and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            return 1  # the last messages of that connection; they would be lost with it
        while zmq.zmq_poll([(self._monitor, zmq.POLLIN)], 0):
            event = self._monitor.recv_multipart(NOBLOCK)[0]
            ended = struct.unpack_from("=H", event)[0] == zmq.EVENT_DISCONNECTED
            self._reconnect_at = time.monotonic_ns() + RECONNECT_AFTER_MS * NS_PER_MS if ended else 0
        if not self._reconnect_at:
            return MAX_SLEEP_MS
        left_ns = self._reconnect_at - time.monotonic_ns()
        if left_ns > 0:
            return left_ns // NS_PER_MS + 1
        self._reconnect()
        return 1  # ZMQ may just have taken note of a message, and its descriptor would not tell again

    def _reconnect(self) -> None:
        self._reconnect_at = 0
        with contextlib.suppress(zmq.ZMQError):  # it is forgotten already
            self._socket.disconnect(self._address.uri)
        self._socket.connect(self._address.uri)

    def close(self, linger: int | None = None) -> None:
        """Leave. Ends a wait of another thread, which gets `EndpointClosedError`. Closing twice does nothing.

        Parameters
        ----------
        linger : milliseconds, as pyzmq's; a subscriber has nothing that could linger.

        Raises
        ------
        InvalidValueError : `linger` is below -1.
        """
        if linger is not None:
            check_linger(linger, self.endpoint)
        super().close()

    def _disconnect(self) -> None:
        try:
            self._end_async_wait()  # before the descriptor wakes the event loop, so the wait ends with an error
        finally:
            if self._loop_fd is not None:
                self._loop_fd.end()
                self._loop_fd = None
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close()

    def _forget(self) -> None:
        """In a forked child: close our copies of the parent's descriptors, without touching what they stand for."""
        if self._loop_fd is not None:
            self._loop_fd.close()
            self._loop_fd = None
        self._waiting = None
        process.put_aside(self._monitor)

    def setTimeout(self, timeout: float) -> None:
        """Choose how long a receive waits, in milliseconds (compatibility: stock's name).

        `receive(timeout=)` takes seconds.

        Parameters
        ----------
        timeout : milliseconds, 0 to 2**31 - 1, fractions rounded up; -1, the default, waits for ever. May be set before
            `connect`, and stays.

        Raises
        ------
        InvalidValueError : any other value.
        """
        self._timeout_ms = timeout_ms(timeout, self.endpoint)

    def _simplify(self) -> None:
        """Let `receive` ask ZMQ directly if nothing speaks against it."""
        self._direct = not (self._conflate or self._unread is not None or self._loop_fd is not None)

    @property
    def rcvtimeo(self) -> int:
        """The time-out in milliseconds (compatibility: pyzmq's name)."""
        return self._timeout_ms

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None:
        self.setTimeout(timeout)

    @property
    def rcvhwm(self) -> int:
        """Messages that the queue here holds (compatibility: pyzmq's name); 0: no limit.

        MSGQ_ZMQ_HWM, unless it was set before `connect`.
        """
        return settings.get_zmq_high_water_mark(self.endpoint) if self._rcvhwm is None else self._rcvhwm

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None:
        check_before_connect("rcvhwm", self.closed, self.endpoint)
        self._rcvhwm = check_rcvhwm(messages, self.endpoint)

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is there, for select, epoll and every event loop.

        It is the same one until the socket closes, and must not be read or closed. ZMQ's news other than messages make
        it readable for a moment, too, so the receive that follows should not wait.
        """
        return self._exclusive(self._make_fd)

    def _make_fd(self) -> int:
        if self._loop_fd is None:
            self._loop_fd = LoopDescriptor(self._zmq_fd)
            self._simplify()
        self._rearm_fd()
        return self._loop_fd.fd

    def _rearm_fd(self) -> None:
        """A call that receives is over. ZMQ's own descriptor only tells of news, so remember what it told before.

        And nobody may call again by himself, so the descriptor tells when it is time to connect anew.
        """
        if self._loop_fd is not None:
            has_message = self._unread is not None or bool(int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN)
            self._loop_fd.set(PAST_TIME_NS if has_message else self._reconnect_at)

    def _next(self, non_blocking: bool) -> bytes:
        """Return the next message with everything considered; raises zmq.Again. The ticket is ours."""
        try:
            return self._take(non_blocking)
        finally:
            self._rearm_fd()

    def _take(self, non_blocking: bool) -> bytes:
        message, self._unread = self._unread, None
        self._simplify()
        if message is None:
            message = self._receive_one(non_blocking)
        if self._conflate:
            for _ in range(BATCH_MAX):
                if not zmq.zmq_poll([(self._socket, zmq.POLLIN)], 0):
                    break
                message = self._recv(NOBLOCK)
                self._skipped += 1
        return message

    def _pending(self, limit: int, wait_for_one: bool, size: int | None = None) -> list[bytes]:
        """Return up to `limit` pending messages, those before the first that has not `size` bytes; that one is held.

        The ticket is ours.
        """
        messages: list[bytes] = []
        try:
            while len(messages) < limit:
                message = self._take(not wait_for_one or bool(messages))
                if size is not None and len(message) != size:
                    self._unread = message
                    break
                messages.append(message)
                if self._conflate:
                    break
        except zmq.Again:
            pass
        finally:
            self._rearm_fd()  # once for all: it costs more than a message does
        self._received += len(messages)
        self._simplify()
        return messages

    def _batch_limit(self, limit: int | None) -> int:
        if limit is None:
            return BATCH_MAX
        if limit < 0:
            raise InvalidValueError(f"limit is {limit}; give 0 or more, or None for all", self.endpoint)
        return limit

    @property
    def tracked(self) -> bool:
        """Whether each message carries its publish and origin time: False."""
        return False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Raise `StateError`: messages carry no times here."""
        check_non_blocking(non_blocking, self.endpoint)
        self._check()
        raise no_tracking_error(self.endpoint)

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the messages that are pending, oldest first.

        Parameters
        ----------
        limit : at most so many; None takes all that have arrived, up to 100,000.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        """
        return self._exclusive(self._pending, self._batch_limit(limit), wait_for_one)

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into memory of the caller's.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        non_blocking : do not wait, whatever the time-out.

        Returns
        -------
        The size of the message, in bytes; what lies behind it in `buffer` keeps its content. None when there was no
        message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It is not lost: the next call finds it.
        TypeError, BufferError : `buffer` is not writable, or not contiguous.
        """
        target: Any = buffer  # for type checkers an array is no buffer before Python 3.12
        view = memoryview(target)
        if view.readonly or not view.c_contiguous:
            raise BufferError("the buffer must be writable, contiguous bytes")
        message = self.receive(non_blocking)
        if message is None:
            return None
        if len(message) > view.nbytes:
            self._unread = message
            self._simplify()
            self._exclusive(self._rearm_fd)
            self._received -= 1
            text = f"the message has {len(message)} bytes, the buffer {view.nbytes}; it stays for the next call"
            raise MessageTooLargeError(text, self.endpoint)
        _fill(view, message)
        return len(message)

    def receive_array(
        self, dtype: npt.DTypeLike, limit: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages, each of which is one element, as an array.

        Parameters
        ----------
        dtype : of one message, of a fixed size and without Python objects. The bytes are taken as they are.
        limit : at most so many; None takes all that are there, up to 100,000.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Returns
        -------
        A new array of shape (messages,): those up to the first that has another size. Empty when there was none.

        Raises
        ------
        MessageSizeError : the first message does not have the size of a `dtype`. It is not lost.
        InvalidValueError : a negative `limit`, or a dtype without bytes of its own.
        """
        import numpy  # the only method that needs it

        most = self._batch_limit(limit)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no bytes of its own; give one of a fixed size"
            raise InvalidValueError(text, self.endpoint)
        messages = self._exclusive(self._pending, most, wait_for_one, element.itemsize)
        if not messages and most and self._unread is not None:
            text = f"the next message has {len(self._unread)} bytes, the dtype {element.itemsize}"
            raise MessageSizeError(f"{text}; receive() takes it as it is", self.endpoint)
        array = numpy.empty(len(messages), element)
        data = b"".join(messages)
        ctypes.memmove(array.ctypes.data, data, len(data))
        return array

    def stats(self) -> SubscriberStats:
        """Return what this socket has received since it connected."""
        return SubscriberStats(self.endpoint, self._received, self.lost, 0)


def _fill(view: memoryview, message: bytes) -> None:
    """Copy a message to the start of a buffer that is large enough."""
    if message:  # an empty buffer has no address
        start = (ctypes.c_char * len(message)).from_buffer(view)
        start.raw = message


class _Poller(PythonPoller):
    _socket_type = SubSocket

    def poll(self, timeout: float) -> list[SubSocket]:
        """Return those of the registered sockets whose next receive returns (or raises) at once, in their order.

        Parameters
        ----------
        timeout : milliseconds to wait for the first, 0 to 2**31 - 1; -1 waits for ever.

        Returns
        -------
        The registered objects themselves; an empty list when the time is up, or nothing is registered.

        Raises
        ------
        InvalidValueError : any other time-out.
        EndpointClosedError : a registered socket was closed.

        Notes
        -----
        Sleeps as `receive` does, with the GIL released.
        """
        milliseconds = timeout_ms(timeout)
        sockets = self._sockets.copy()  # another thread may register more meanwhile
        if not sockets:
            return []
        ready = all_exclusive(sockets, _wait, sockets, milliseconds)
        return [socket for socket in sockets if socket._unread is not None or id(socket._socket) in ready]


def _wait(sockets: list[SubSocket], milliseconds: int) -> set[int]:
    """Return the ids of the ZMQ sockets that have a message, waiting for one. All tickets are ours."""
    if any(socket._unread is not None for socket in sockets):
        milliseconds = 0
    deadline = time.monotonic_ns() + milliseconds * NS_PER_MS if milliseconds >= 0 else -1
    items = [(socket._socket, zmq.POLLIN) for socket in sockets]
    news = [socket._zmq_fd for socket in sockets]
    while not (ready := zmq.zmq_poll(items, 0)):
        max_sleep_ms = min([socket._reconnect_if_lost() for socket in sockets])
        if not sockets[0]._sleep(news, deadline, max_sleep_ms):
            break
    for socket in sockets:
        socket._rearm_fd()
    return {id(socket) for socket, _ in ready}


class Poller(PyzmqPoller[SubSocket], _Poller):
    """Waits for several subscribers, and descriptors, at once. One thread at a time may use it, and its sockets."""

"""Connection of a ZMQ subscriber: connecting, reconnecting, closing, and its descriptor."""

from __future__ import annotations

import contextlib
import itertools
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from msgq.common import naming, settings
from msgq.common.units import NS_PER_MS
from msgq.errors import InvalidValueError, StateError
from msgq.impl.base.argument_checks import (
    check_before_connect,
    check_linger,
    check_rcvhwm,
)
from msgq.impl.base.core import Context
from msgq.impl.sockets.async_receiver import AsyncReceiver
from msgq.impl.zeromq import process
from msgq.impl.zeromq.addresses import ZmqAddress, subscriber_address
from msgq.impl.zeromq.curve import secure_subscriber
from msgq.impl.zeromq.descriptor import ALREADY_READY_NS, EventLoopDescriptor
from msgq.impl.zeromq.guard import GuardedReceiver
from msgq.impl.zeromq.linger import LingerOption

if TYPE_CHECKING:
    from msgq.impl.base.event_loop import LoopReader

RECONNECT_INTERVAL_MS = 10  # delay after the first failure; then twice as long each time, up to:
RECONNECT_INTERVAL_MAX_MS = 100
RECONNECT_DELAY_MS = 50  # delay after the end of a connection; ZMQ may try again earlier
MAX_SLEEP_MS = 1000  # maximum sleep. A signal that came just before a sleep is handled after the sleep
ZMQ_NOBLOCK = int(zmq.NOBLOCK)  # a plain number: pyzmq's own is an enum, which costs
_wake_numbers = itertools.count()


class SubConnection(AsyncReceiver, LingerOption, GuardedReceiver):
    """A subscriber's connection to an address. The connection survives the loss of the publisher and a fork."""

    __slots__ = (
        "_address",
        "_asyncio_reader",
        "_conflate",
        "_conflate_default",
        "_held_message",
        "_linger_ms",
        "_loop_fd",
        "_monitor_socket",
        "_rcvhwm",
        "_reconnect_at_ns",
        "_skipped_count",
        "_socket",
        "_wake_address",
        "_zmq_recv",
    )

    _socket: zmq.Socket[bytes]
    _monitor_socket: zmq.Socket[bytes]
    _zmq_recv: Callable[..., bytes]
    _address: ZmqAddress

    def __init__(self) -> None:
        self._conflate = self._conflate_default = False  # the current state, and the state that was set before connect
        self._rcvhwm: int | None = None  # None: from the environment
        self._linger_ms = 0
        self._held_message: bytes | None = None  # a message that did not suit the call that took it
        self._skipped_count = 0
        self._reconnect_at_ns = 0  # monotonic nanoseconds; 0: the connection has not ended, or ZMQ has another one
        self._wake_address = ""
        self._asyncio_reader: LoopReader | None = None
        self._loop_fd: EventLoopDescriptor | None = None

    def __del__(self) -> None:
        if self._is_open_here():
            self._close_and_release()

    @property
    def conflate(self) -> bool:
        """True if `receive` skips all messages except the newest."""
        return self._conflate

    @conflate.setter
    def conflate(self, value: bool) -> None:
        check_before_connect("conflate", self.closed, self.endpoint)
        self._conflate = self._conflate_default = bool(value)

    @property
    def rcvhwm(self) -> int:
        """Limit of messages in the subscriber's queue (compatibility: pyzmq's name); 0: no limit.

        The default is MSGQ_ZMQ_HWM. Set it before `connect`.
        """
        return settings.get_zmq_high_water_mark(self.endpoint) if self._rcvhwm is None else self._rcvhwm

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None:
        check_before_connect("rcvhwm", self.closed, self.endpoint)
        self._rcvhwm = check_rcvhwm(messages, self.endpoint)

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
        latest: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Subscribe to later messages. The publisher may be missing. A publisher that appears is found within 0.1 s.

        Args:
            context: a context that is not terminated.
            endpoint: name of the topic: 1 to 246 bytes of UTF-8 without "/" and NUL.
            address: host of the publisher, for tcp.
            conflate: receive the newest message only.
            segment_size: ignored by this backend.
            mode: ignored by this backend.
            passive: ignored by this backend.
            spin_us: ignored by this backend.
            trust: ignored by this backend.
            latest: must be False, because ZMQ keeps no messages for later subscribers.
            prefix: prefix of the topic, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid, or the path of its socket file is too long.
            StateError: the context is terminated, the socket is connected already, or `latest` is True.
            InvalidValueError: the address is not a host, or an environment variable is invalid.
        """
        name = naming.validate_endpoint_name(endpoint)
        self._check_connectable(context, name)
        if latest:
            text = "ZMQ keeps no message for later subscribers; use latest=True with the backends msgq and fake"
            raise StateError(f"{text}, or let the publisher repeat its last message", name)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"address is of type {type(address).__name__}; give str or bytes")
        host = address.decode(errors="replace") if isinstance(address, bytes) else address
        with settings.overrides(prefix):
            self._address = subscriber_address(name, host)
        self._conflate = bool(conflate) or self._conflate_default
        self._connect_in_this_process()

    def _connect_in_this_process(self) -> None:
        """Connect to the address, also in a forked child."""
        name = self.endpoint
        self._wake_address = f"inproc://msgq-wake-{next(_wake_numbers)}"
        socket = process.open_zmq_socket(zmq.SUB, name, settings.get_zmq_max_bytes(name))
        try:
            self._set_up_socket(socket)
        except BaseException as error:
            socket.close()
            if isinstance(error, zmq.ZMQError):
                text = f"cannot connect to {self._address.uri}: {error}"
                raise InvalidValueError(text, name, error.errno) from error
            raise
        self._socket, self._zmq_recv = socket, socket.recv
        self._reconnect_at_ns = 0
        self._held_message, self._skipped_count = None, 0
        self._update_direct_receive()
        # ZMQ's descriptor reports new events only once.
        self._mark_open(self._zmq_recv, zmq.Again, int(socket.get(zmq.FD)))
        process.register_socket(self)

    def _set_up_socket(self, socket: zmq.Socket[bytes]) -> None:
        socket.linger = self._linger_ms
        socket.rcvhwm = self.rcvhwm
        socket.reconnect_ivl, socket.reconnect_ivl_max = RECONNECT_INTERVAL_MS, RECONNECT_INTERVAL_MAX_MS
        if ":" in self._address.host:
            socket.ipv6 = True
        secure_subscriber(socket, self.endpoint)
        socket.subscribe(b"")
        self._monitor_socket = process.open_monitor_socket(socket, self.endpoint)
        socket.bind(self._wake_address)
        socket.connect(self._address.uri)

    def _wake_waiting_thread(self) -> None:
        """End a wait of another thread by a message through a separate socket.

        Only the waiting thread may use the ZMQ socket.
        """
        with process.open_zmq_socket(zmq.PUSH, self.endpoint) as push:
            push.connect(self._wake_address)
            push.send(b"", ZMQ_NOBLOCK)

    def _reconnect_if_lost(self) -> int:
        """Connect again if ZMQ has given up the publisher.

        No message is available, and the caller has acquired the guard.

        ZMQ gives up a publisher silently and forever if the publisher sends invalid protocol data or announces a too
        large message. Otherwise ZMQ reconnects, and its monitor reports success. If a connection ended and none
        replaced it within `RECONNECT_DELAY_MS`, connecting again is right in both cases.

        Returns:
            Milliseconds until the next call, at least 1.
        """
        if self._reconnect_at_ns and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            return 1  # the last messages of that connection; they would be lost with it
        while zmq.zmq_poll([(self._monitor_socket, zmq.POLLIN)], 0):
            event = self._monitor_socket.recv_multipart(ZMQ_NOBLOCK)[0]
            ended = struct.unpack_from("=H", event)[0] == zmq.EVENT_DISCONNECTED
            self._reconnect_at_ns = time.monotonic_ns() + RECONNECT_DELAY_MS * NS_PER_MS if ended else 0
        if not self._reconnect_at_ns:
            return MAX_SLEEP_MS
        left_ns = self._reconnect_at_ns - time.monotonic_ns()
        if left_ns > 0:
            return left_ns // NS_PER_MS + 1
        self._reconnect()
        return 1  # ZMQ may just have taken note of a message, and its descriptor would not tell again

    def _reconnect(self) -> None:
        self._reconnect_at_ns = 0
        with contextlib.suppress(zmq.ZMQError):  # it is forgotten already
            self._socket.disconnect(self._address.uri)
        self._socket.connect(self._address.uri)

    def close(self, linger: int | None = None) -> None:
        """Close the socket. A wait of another thread ends with `EndpointClosedError`. A second close has no effect.

        Args:
            linger: milliseconds (compatibility: pyzmq), without effect on a subscriber.

        Raises:
            InvalidValueError: `linger` is below -1.
        """
        if linger is not None:
            check_linger(linger, self.endpoint)
        super().close()

    def _close_zmq_sockets(self) -> None:
        try:
            reader, self._asyncio_reader = self._asyncio_reader, None
            if reader is not None:
                reader.close(self.endpoint)  # before the descriptor wakes the event loop
        finally:
            if self._loop_fd is not None:
                self._loop_fd.close_readable()
                self._loop_fd = None
            self._socket.disable_monitor()
            self._monitor_socket.close()
            self._socket.close()

    def _close_parent_descriptors(self) -> None:
        """In a forked child: close the copies of the parent's descriptors, without using their files."""
        if self._loop_fd is not None:
            self._loop_fd.close()
            self._loop_fd = None
        self._asyncio_reader = None
        process.keep_parent_socket(self._monitor_socket)

    def _update_direct_receive(self) -> None:
        """Let `receive` call ZMQ directly if no other state must be considered."""
        self._receives_directly = not (self._conflate or self._held_message is not None or self._loop_fd is not None)

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is available, for select, epoll and event loops.

        The descriptor stays the same until the socket closes. Do not read or close it. Other ZMQ events also make it
        readable for a moment, so receive without waiting afterwards.
        """
        return self._call_exclusively(self._make_loop_fd)

    def _make_loop_fd(self) -> int:
        if self._loop_fd is None:
            self._loop_fd = EventLoopDescriptor(self._zmq_fd)
            self._update_direct_receive()
        self._rearm_fd()
        return self._loop_fd.fd

    def _rearm_fd(self) -> None:
        """Called after each receive. ZMQ's descriptor reports changes only, so remember the last state.

        The program may not call again by itself, so the descriptor also becomes readable when a reconnection is due.
        """
        if self._loop_fd is not None:
            has_message = self._held_message is not None or bool(int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN)
            self._loop_fd.set_ready_time(ALREADY_READY_NS if has_message else self._reconnect_at_ns)

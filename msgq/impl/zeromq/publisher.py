"""Publisher's socket: an XPUB, which reports subscriptions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import zmq

from msgq.common import naming, settings
from msgq.common.schema import Schema, require_schema
from msgq.common.stats.topic import PublisherStats
from msgq.errors import InvalidValueError, IpcError
from msgq.impl.base.argument_checks import (
    check_before_connect,
    check_linger,
    check_sndhwm,
    check_sndtimeo,
    zmq_untracked_error,
)
from msgq.impl.base.core import Context
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.sockets.publishing import Reservation, split_messages, wait_for_readers
from msgq.impl.zeromq import process
from msgq.impl.zeromq.addresses import ZmqAddress, publisher_address
from msgq.impl.zeromq.claims import AddressClaim
from msgq.impl.zeromq.curve import secure_publisher
from msgq.impl.zeromq.guard import GuardedSender
from msgq.impl.zeromq.linger import LingerOption

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer

# Maximum bytes of a subscription, which is the start of the wanted messages.
SUBSCRIPTION_MAX_BYTES = 65536
LINGER_MS = 1000  # time for the last messages after close, if `linger` is not set


@add_advice
class PubSocket(LingerOption, GuardedSender):
    """Publishes messages on one endpoint.

    The socket binds the endpoint's address. A second publisher gets `MultiplePublishersError` from `connect`. Any
    program with a ZMQ SUB socket may subscribe. If a subscriber's queue is full, its messages are dropped, and `stats`
    counts them. Slow subscribers never block the publisher.

    One thread at a time may use a socket; a second thread gets `ConcurrentUseError`. After a fork, the parent keeps the
    address. The child binds the address at its first call, and gets `MultiplePublishersError` while the parent has it.

    If the socket is closed or was never connected, all methods except `connect`, `close` and `stats` raise
    `EndpointClosedError`. Deleted sockets close, and open sockets close when the process ends.
    """

    __slots__ = (
        "_address",
        "_address_claim",
        "_dropped_count",
        "_first_unread_message",
        "_linger_ms",
        "_prefix",
        "_reader_count",
        "_sndhwm",
        "_socket",
        "_zmq_send",
    )

    _socket: zmq.Socket[bytes]
    _zmq_send: Callable[..., Any]
    _address: ZmqAddress
    _address_claim: AddressClaim
    _prefix: str

    def __init__(self) -> None:
        self._linger_ms = LINGER_MS
        self._sndhwm: int | None = None  # None: from the environment
        self._dropped_count = self._reader_count = 0
        self._first_unread_message = 0  # the first message that a present subscriber may have been sent

    def __del__(self) -> None:
        if self._is_open_here():
            self._close_and_release()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._sent_count} messages published"
        return f"<msgq PubSocket {self.endpoint!r}, {state}>"

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
        prefix: str | None = None,
    ) -> None:
        """Become the publisher of an endpoint.

        Args:
            context: a context that is not terminated.
            endpoint: name of the topic: 1 to 246 bytes of UTF-8 without "/" and NUL.
            segment_size: ignored by this backend.
            mode: ignored by this backend.
            schema: ignored by this backend.
            trust: ignored by this backend.
            tracked: None or False, because messages have no timestamps here.
            prefix: prefix of the topic, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid, or the path of its socket file is too long.
            StateError: the context is terminated, the socket is connected already, or `tracked` is True.
            InvalidValueError: an environment variable is invalid.
            MultiplePublishersError: the endpoint has a publisher, or an unknown program has its port.
            IpcError: a publisher of another endpoint has the port, or the address cannot be bound.

        Notes:
            Waits at most 1 s for a port that a previous publisher releases. The GIL is released, and signal handlers
            run.
        """
        name = naming.validate_endpoint_name(endpoint)
        self._check_connectable(context, name)
        if tracked:
            raise zmq_untracked_error(name)
        if schema is not None:
            require_schema(schema)
        self._prefix = settings.resolve_prefix(prefix)
        self._connect_in_this_process()

    def _connect_in_this_process(self) -> None:
        """Bind the address, also in a forked child."""
        name = self.endpoint
        self._message_bytes_max = settings.get_zmq_max_bytes(name)
        socket = process.open_zmq_socket(zmq.XPUB, name, SUBSCRIPTION_MAX_BYTES)
        try:
            socket.linger = self._linger_ms
            socket.sndhwm = self.sndhwm
            socket.set(zmq.XPUB_VERBOSER, 1)  # tell of every subscriber that comes and goes, not of the first and last
            socket.set(zmq.XPUB_NODROP, 1)  # a full queue is an error, so that it can be counted
            secure_publisher(socket, name)
            with settings.overrides(self._prefix):
                self._address = publisher_address(name)
                self._address_claim = AddressClaim(name, self._address)
            self._bind_socket(socket)
        except BaseException:
            socket.close()
            raise
        self._socket = socket
        self._zmq_send = super(zmq.Socket, socket).send  # the compiled method beneath pyzmq's Python one
        self._dropped_count = self._reader_count = self._first_unread_message = 0
        self._mark_open(self._zmq_send, zmq.Again)
        process.register_socket(self)

    def _bind_socket(self, socket: zmq.Socket[bytes]) -> None:
        try:
            socket.set(zmq.USE_FD, self._address_claim.listener)
            socket.bind(self._address.uri)
        except BaseException as error:
            os.close(self._address_claim.listener)
            self._address_claim.release_address()
            if isinstance(error, zmq.ZMQError):
                raise IpcError(f"cannot bind {self._address.uri}: {error}", self.endpoint, error.errno) from error
            raise

    def unlink(self) -> bool:
        """Return False, because ZMQ has no topics without sockets.

        Raises:
            EndpointClosedError: the socket is closed, or was never connected.
        """
        self._check_open()
        return False

    def close(self, linger: int | None = None) -> None:
        """Close the socket. A second close has no effect.

        Args:
            linger: milliseconds for sent messages to leave, -1 forever; None: the property `linger`.

        Raises:
            ConcurrentUseError: another thread is sending.
            InvalidValueError: `linger` is below -1.
        """
        if linger is not None:
            check_linger(linger, self.endpoint)
            if self._is_open_here():
                self.linger = linger
        super().close()

    def _close_zmq_sockets(self) -> None:
        self._socket.close()
        self._address_claim.release_address()

    def _close_parent_descriptors(self) -> None:
        """In a forked child: close descriptors of the parent, and use no other state."""
        self._address_claim.close_inherited_listener()

    def _send_past_full_queues(self, data: Any) -> None:
        """Send the message again after an update of the queues.

        If a queue is still full, send to the others and count a drop.

        ZMQ checks once per millisecond which messages were read, so a queue that counts as full may have room. With a
        forced send, ZMQ skips a full queue silently until half of it was read, so the count is a lower bound. With one
        subscriber, no forced send is necessary, and the count is exact.
        """
        readers = self._poll_subscriptions()
        try:
            self._zmq_send(data, zmq.NOBLOCK)
            return
        except zmq.Again:
            self._dropped_count += 1
        if readers > 1:
            self._socket.set(zmq.XPUB_NODROP, 0)
            try:
                self._zmq_send(data, zmq.NOBLOCK)
            finally:
                self._socket.set(zmq.XPUB_NODROP, 1)

    @property
    def sndhwm(self) -> int:
        """Limit of waiting messages per subscriber (compatibility: pyzmq's name); 0: no limit.

        The default is MSGQ_ZMQ_HWM. Set it before `connect`.
        """
        return settings.get_zmq_high_water_mark(self.endpoint) if self._sndhwm is None else self._sndhwm

    @sndhwm.setter
    def sndhwm(self, messages: int) -> None:
        check_before_connect("sndhwm", self.closed, self.endpoint)
        self._sndhwm = check_sndhwm(messages, self.endpoint)

    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait (compatibility: pyzmq's name): always 0.

        A send never waits, and `stats` counts drops.
        """
        return 0

    @sndtimeo.setter
    def sndtimeo(self, milliseconds: int) -> None:
        check_sndtimeo(milliseconds, self.endpoint)

    @property
    def tracked(self) -> bool:
        """Always False: messages have no timestamps here."""
        return False

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /, *, origin_time: int = 0
    ) -> int:
        """Publish several messages, and return their number.

        Args:
            messages: an iterable of buffers, or a C-contiguous array or buffer whose first axis counts the messages.
            origin_time: 0; see `send`.

        Raises:
            Exception: errors of `send`. Messages before the error are published.
            TypeError: `messages` is a single bytes object.
        """
        self._check_open()
        if origin_time:
            raise zmq_untracked_error(self.endpoint)
        count = 0
        for message in split_messages(messages, self.endpoint):
            self.send(message)
            count += 1
        return count

    def reserve(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Write one message in place: ``with pub.reserve(size) as view: ...``.

        Args:
            size: bytes of the message.
            origin_time: 0; see `send`.

        Returns:
            A context manager. Entering returns a writable view of `size` bytes. Leaving publishes the bytes, or
            publishes nothing if the block raised. The view is released at the end of the block.

        Raises:
            InvalidValueError: the size is negative.
            StateError: the context manager is entered a second time.
            EndpointClosedError: raised on leaving, if the socket was closed.

        Notes:
            During the block, other methods of this socket raise `ConcurrentUseError`.
        """
        self._check_open()
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self.endpoint)
        if origin_time:
            raise zmq_untracked_error(self.endpoint)
        return Reservation(self, size)

    loan = reserve

    def _begin_reservation(self, size: int) -> None:
        """Do nothing, because any size is allowed."""
        self._mark_reserved()

    def _poll_subscriptions(self) -> int:
        """Read ZMQ's subscription events, and return the number of subscribers. The caller has acquired the guard."""
        while zmq.zmq_poll([(self._socket, zmq.POLLIN)], 0):
            notification = self._socket.recv(zmq.NOBLOCK)
            if notification[:1] == b"\1":
                self._reader_count += 1
            elif notification[:1] == b"\0" and self._reader_count:
                self._reader_count -= 1
        if not self._reader_count:
            self._first_unread_message = self._sent_count
        return self._reader_count

    def _count_readers(self) -> tuple[int, bool]:
        """Return the number of subscribers, and True if all have certainly read everything."""
        readers = self._count_exclusively(self._poll_subscriptions)
        return readers, readers > 0 and self._first_unread_message == self._sent_count

    def all_readers_updated(self) -> bool:
        """Return True if subscribers exist and have certainly read all published messages.

        ZMQ does not report what subscribers have read. Therefore the result is True only if a subscriber exists and no
        message was sent since its subscription.
        """
        return self._count_readers()[1]

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until subscribers are connected.

        Args:
            timeout: seconds; None waits forever.
            interval: seconds between two checks.
            n: number of subscriptions to wait for (one for each subscriber of this library); None: wait for
                `all_readers_updated`, which stays False after a message was sent to an existing subscriber.

        Raises:
            WaitTimeoutError: the timeout passed. Also a TimeoutError.
            InvalidValueError: a negative timeout or `n`, or an interval that is not positive.

        Notes:
            The GIL is released between the checks, and signal handlers run.
        """

        def count_readers() -> tuple[int, int | None]:
            readers, updated = self._count_readers()
            return readers, readers if updated else None

        wait_for_readers(count_readers, timeout, interval, n, self.endpoint)

    def stats(self) -> PublisherStats:
        """Return the messages sent since `connect`, and the messages dropped by full queues."""
        return PublisherStats(self.endpoint, self._sent_count, self._sent_bytes, self._dropped_count)

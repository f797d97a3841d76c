"""The publisher's socket: an XPUB, which tells of its subscribers."""

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

# What subscribers send are the starts of messages that they want.
SUBSCRIPTION_MAX_BYTES = 65536
LINGER_MS = 1000  # how long what was sent last may take to leave, unless `linger` says otherwise


class PubSocket(LingerOption, GuardedSender):
    """Publishes messages on one endpoint.

    It binds the endpoint's address, and there can be one only: a second one gets `MultiplePublishersError` when it
    connects. Any program with a ZMQ SUB socket may subscribe. A subscriber's queue that is full costs it messages,
    which `stats` counts; it never holds up the publisher.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`. After a fork the parent keeps the
    address. The child binds it at its first call, as `close` and `connect` would, and gets `MultiplePublishersError`
    while the parent has it. Every method but `connect`, `close`, `stats` and the properties raises
    `EndpointClosedError` when the socket is closed or was never connected. A socket that is deleted, or still open when
    the process ends, is closed.
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
        """Become the endpoint's publisher.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        segment_size, mode, schema, trust : for the ring; ZMQ has no place for them.
        tracked : None or False; messages carry no times here.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint, or its socket file would have too long a path.
        StateError : the context was terminated, or the socket is connected; tracked=True.
        InvalidValueError : the environment makes no sense.
        MultiplePublishersError : the endpoint has a publisher, or an unknown program has its port.
        IpcError : the publisher of another endpoint has the port; or the address cannot be bound.

        Notes
        -----
        Waits at most 1 s for a port that a former publisher leaves; the GIL is released, signal handlers run.
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
        """Return False: ZMQ has no topic that outlives its sockets.

        Raises
        ------
        EndpointClosedError : the socket is closed, or was never connected.
        """
        self._check_open()
        return False

    def close(self, linger: int | None = None) -> None:
        """Leave. Closing twice does nothing.

        Parameters
        ----------
        linger : milliseconds that sent messages may take to leave, -1 for ever; None: as the property `linger`.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a send.
        InvalidValueError : `linger` is below -1.
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
        """In a forked child: close file descriptors that belong to the parent, and touch nothing else."""
        self._address_claim.close_inherited_listener()

    def _send_past_full_queues(self, data: Any) -> None:
        """Send it again after a look at the queues; to those that have room, and count it as dropped, if that fails.

        ZMQ looks once a millisecond at what was read meanwhile, so a queue that it calls full may have room. Told to
        send all the same, it skips a full queue until half of that was read, without a word: the count is a lower bound
        then. With one subscriber there is nobody else to send to; leaving it at that keeps the count exact.
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

        MSGQ_ZMQ_HWM unless set before `connect`.
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
        """Whether each message carries its publish and origin time: False."""
        return False

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /, *, origin_time: int = 0
    ) -> int:
        """Publish several messages, and return how many.

        Parameters
        ----------
        messages : an iterable of buffers, or a C-contiguous array (or buffer of more than one dimension), whose rows
            along the first axis are the messages.
        origin_time : 0; see `send`.

        Raises
        ------
        As `send`. What was sent before the error is published.
        TypeError : one `bytes` or the like: that is one message, for `send`.
        """
        self._check_open()
        if origin_time:
            raise zmq_untracked_error(self.endpoint)
        count = 0
        for message in split_messages(messages):
            self.send(message)
            count += 1
        return count

    def reserve(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Write one message in place: ``with pub.reserve(size) as view: ...``.

        Parameters
        ----------
        size : bytes of the message.
        origin_time : 0; see `send`.

        Returns
        -------
        A context manager. Entering gives a writable view of `size` bytes; leaving publishes them, or nothing when the
        block raised. The view is released at the end of the block.

        Raises
        ------
        InvalidValueError : a negative size.
        StateError : when entering for the second time.
        When leaving, EndpointClosedError.

        Notes
        -----
        While the block runs, this socket's other methods raise `ConcurrentUseError`.
        """
        self._check_open()
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self.endpoint)
        if origin_time:
            raise zmq_untracked_error(self.endpoint)
        return Reservation(self, size)

    loan = reserve

    def _begin_reservation(self, size: int) -> None:
        """Any size will do."""
        self._mark_reserved()

    def _poll_subscriptions(self) -> int:
        """Read ZMQ's news of subscribers, and return how many there are; the ticket is ours."""
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
        """Return how many subscribers there are, and whether they have certainly read everything."""
        readers = self._call_exclusively(self._poll_subscriptions)
        return readers, readers > 0 and self._first_unread_message == self._sent_count

    def all_readers_updated(self) -> bool:
        """Tell whether there are subscribers that have certainly read all that was published.

        ZMQ does not tell what subscribers have read. So this is True when there is one and nothing was sent since, and
        False when there is none, or as soon as something is sent.
        """
        return self._count_readers()[1]

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until subscribers are there.

        Parameters
        ----------
        timeout : seconds; None waits for ever.
        interval : seconds between two looks.
        n : return when at least so many subscriptions are there (each of our subscribers makes one); None: when
            `all_readers_updated`, which does not come about once something was sent to a present subscriber.

        Raises
        ------
        WaitTimeoutError : it did not come about in time. Also a TimeoutError.
        InvalidValueError : a negative time-out or `n`, or an interval that is not above 0.

        Notes
        -----
        Releases the GIL between the looks; signal handlers run.
        """

        def count_readers() -> tuple[int, int | None]:
            readers, updated = self._count_readers()
            return readers, readers if updated else None

        wait_for_readers(count_readers, timeout, interval, n, self.endpoint)

    def stats(self) -> PublisherStats:
        """Return how much this publisher has sent since it connected, and what did not fit subscribers' queues."""
        return PublisherStats(self.endpoint, self._sent_count, self._sent_bytes, self._dropped_count)

"""The publisher's socket: an XPUB, which tells of its subscribers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import zmq

from msgq import naming
from msgq.errors import InvalidValueError, IpcError, WaitTimeoutError
from msgq.impl.context import Context
from msgq.impl.zeromq import process
from msgq.impl.zeromq.addresses import publisher_address
from msgq.impl.zeromq.claims import Claim
from msgq.impl.zeromq.curve import secure_publisher
from msgq.impl.zeromq.process import BUSY, CLOSED, RESERVED, Endpoint
from msgq.schema import Schema
from msgq.stats import PublisherStats

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer

HIGH_WATER_MARK = 1000  # messages in the queue of each subscriber, ZMQ's own default
LINGER_MS = 1000  # how long what was sent last may take to leave, after closing and at exit
NOBLOCK = int(zmq.NOBLOCK)  # a plain number: pyzmq's own is an enum, which costs at every send
LOOK_EVERY = 1024  # sends; a power of two


class PubSocket(Endpoint):
    """Publishes messages on one endpoint.

    It binds the endpoint's address, and there can be one only: a second one gets `MultiplePublishersError` when it
    connects. Any program with a ZMQ SUB socket may subscribe. A subscriber's queue that is full costs it messages,
    which `stats` counts; it never holds up the publisher.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`. After a fork the parent keeps the
    socket, the child gets `ForkedSocketError`. Every method but `connect`, `close`, `stats` and the properties raises
    `EndpointClosedError` when the socket is closed or was never connected. A socket that is deleted, or still open when
    the process ends, is closed.
    """

    __slots__ = ("_bytes", "_claim", "_dropped", "_messages", "_readers", "_send", "_unread_from")

    _claim: Claim
    _send: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self._messages = self._bytes = self._dropped = 0
        self._readers = 0
        self._unread_from = 0  # the first message that a present subscriber may have been sent

    def __del__(self) -> None:
        if self._ticket != CLOSED and self._generation == process.generation:
            self._leave()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._messages} messages published"
        return f"<msgq PubSocket {self._endpoint!r}, {state}>"

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
    ) -> None:
        """Become the endpoint's publisher.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        segment_size, mode, schema : for the ring; ZMQ has no place for them.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint, or its socket file would have too long a path.
        InvalidValueError : the context was terminated, the socket is connected, or the environment makes no sense.
        MultiplePublishersError : the endpoint has a publisher, or an unknown program has its port.
        IpcError : the publisher of another endpoint has the port; or the address cannot be bound.

        Notes
        -----
        Waits at most 1 s for a port that a former publisher leaves; the GIL is released, signal handlers run.
        """
        name = naming.endpoint_name(endpoint)
        self._check_connectable(context, name)
        if schema is not None and not isinstance(schema, Schema):
            raise TypeError(f"a schema is a msgq.Schema, not {type(schema).__name__}")
        self._endpoint = name
        self._address = publisher_address(name)
        socket = process.zmq_context().socket(zmq.XPUB)
        try:
            socket.linger = LINGER_MS
            socket.sndhwm = HIGH_WATER_MARK
            socket.set(zmq.XPUB_VERBOSER, 1)  # tell of every subscriber that comes and goes, not of the first and last
            socket.set(zmq.XPUB_NODROP, 1)  # a full queue is an error, so that it can be counted
            secure_publisher(socket, name)
            self._claim = Claim(name, self._address)
            self._bind(socket)
        except BaseException:
            socket.close()
            raise
        self._socket = socket
        self._send = super(zmq.Socket, socket).send  # the compiled method beneath pyzmq's Python one
        self._messages = self._bytes = self._dropped = self._readers = self._unread_from = 0
        self._connected()

    def _bind(self, socket: zmq.Socket[bytes]) -> None:
        try:
            socket.set(zmq.USE_FD, self._claim.listener)
            socket.bind(self._address.uri)
        except BaseException as error:
            os.close(self._claim.listener)
            self._claim.release()
            if isinstance(error, zmq.ZMQError):
                raise IpcError(f"cannot bind {self._address.uri}: {error}", self._endpoint, error.errno) from error
            raise

    def close(self) -> None:
        """Leave. What was sent has 1 s to arrive, in the background. Closing twice does nothing.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a send.
        """
        if self._ticket == CLOSED:
            return
        if self._generation == process.generation:
            if self._ticket == BUSY:
                raise self._misuse()
            self._leave()
        self._ticket = CLOSED

    def _leave(self) -> None:
        self._ticket = CLOSED
        self._socket.close()
        self._claim.release()

    def forget(self) -> None:
        """In a forked child: close file descriptors that belong to the parent, and touch nothing else."""
        self._claim.forget()

    def send(self, data: ReadableBuffer | npt.NDArray[Any], /) -> None:
        """Publish one message.

        Parameters
        ----------
        data : anything with contiguous bytes. It is copied, so it may change as soon as this returns.

        Raises
        ------
        TypeError, BufferError : `data` has no contiguous bytes.

        Notes
        -----
        Never waits for subscribers. Releases the GIL while the message is copied and queued.
        """
        if self._ticket != process.generation:
            raise self._misuse()
        self._ticket = BUSY
        try:
            if not self._messages & (LOOK_EVERY - 1):
                self._look()  # ZMQ keeps its news of subscribers until somebody reads it
            if type(data) is bytes:
                size = len(data)
            else:
                data = _contiguous(data)
                size = data.nbytes
            self._send(data, NOBLOCK)
        except zmq.Again:
            self._send_past_full_queues(data)
        finally:
            self._ticket = self._generation
        self._messages += 1
        self._bytes += size

    def _send_past_full_queues(self, data: Any) -> None:
        """Count the message as dropped, and send it to those whose queues have room.

        ZMQ then skips a full queue until half of it was read, without a word. With one subscriber there is nobody else
        to send to; leaving it at that keeps the count exact.
        """
        self._dropped += 1
        if self._look() > 1:
            self._socket.set(zmq.XPUB_NODROP, 0)
            try:
                self._send(data, NOBLOCK)
            finally:
                self._socket.set(zmq.XPUB_NODROP, 1)

    def send_many(self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /) -> int:
        """Publish several messages, and return how many.

        Parameters
        ----------
        messages : an iterable of buffers, or a C-contiguous array (or buffer of more than one dimension), whose rows
            along the first axis are the messages.

        Raises
        ------
        As `send`. What was sent before the error is published.
        TypeError : one `bytes` or the like: that is one message, for `send`.
        """
        self._check()
        count = 0
        for message in _rows(messages):
            self.send(message)
            count += 1
        return count

    def reserve(self, size: int) -> AbstractContextManager[memoryview]:
        """Write one message in place: ``with pub.reserve(size) as view: ...``.

        Parameters
        ----------
        size : bytes of the message.

        Returns
        -------
        A context manager. Entering gives a writable view of `size` bytes; leaving publishes them, or nothing when the
        block raised. The view is released at the end of the block.

        Raises
        ------
        InvalidValueError : a negative size.
        When leaving, EndpointClosedError.

        Notes
        -----
        While the block runs, this socket's other methods raise `ConcurrentUseError`, except `close`.
        """
        self._check()
        if size < 0:
            raise InvalidValueError(f"a message cannot have {size} bytes", self._endpoint)
        return self._reservation(size)

    @contextlib.contextmanager
    def _reservation(self, size: int) -> Iterator[memoryview]:
        self._check()
        message = bytearray(size)
        self._ticket = RESERVED
        view = memoryview(message)
        try:
            yield view
        except BaseException:
            self._end_reservation(view)
            raise
        self._end_reservation(view)
        self.send(message)

    def _end_reservation(self, view: memoryview) -> None:
        with contextlib.suppress(BufferError):  # an array made from the view still lives
            view.release()
        if self._ticket != RESERVED or self._generation != process.generation:
            raise self._misuse()
        self._ticket = self._generation

    def _look(self) -> int:
        """Read ZMQ's news of subscribers, and return how many there are; the ticket is ours."""
        while zmq.zmq_poll([(self._socket, zmq.POLLIN)], 0):
            news = self._socket.recv(NOBLOCK)
            if news[:1] == b"\1":
                self._readers += 1
            elif news[:1] == b"\0" and self._readers:
                self._readers -= 1
        if not self._readers:
            self._unread_from = self._messages
        return self._readers

    def _count(self) -> tuple[int, bool]:
        """Return how many subscribers there are, and whether they have certainly read everything."""
        self._check()
        self._ticket = BUSY
        try:
            readers = self._look()
        finally:
            self._ticket = self._generation
        return readers, readers > 0 and self._unread_from == self._messages

    def all_readers_updated(self) -> bool:
        """Tell whether there are subscribers that have certainly read all that was published.

        ZMQ does not tell what subscribers have read. So this is True when there is one and nothing was sent since, and
        False when there is none, or as soon as something is sent.
        """
        return self._count()[1]

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
        if (timeout is not None and not timeout >= 0) or not interval > 0 or (n is not None and n < 0):
            text = f"timeout={timeout} (seconds, None for ever), interval={interval} (> 0 seconds), n={n}: not possible"
            raise InvalidValueError(text, self._endpoint)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            readers, updated = self._count()
            if updated if n is None else readers >= n:
                return
            if deadline is not None and time.monotonic() >= deadline:
                unknown = "at least one that was sent nothing yet: ZMQ does not tell what was read, so give n="
                wanted = unknown if n is None else f"{n} attached"
                text = f"after {timeout} s {readers} subscribers are attached; wanted: {wanted}"
                raise WaitTimeoutError(text, self._endpoint)
            time.sleep(interval)

    def stats(self) -> PublisherStats:
        """Return how much this publisher has sent since it connected, and what did not fit subscribers' queues."""
        return PublisherStats(self._endpoint, self._messages, self._bytes, self._dropped)


def _contiguous(data: Any) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("a message must be contiguous bytes; copy it first")
    return view


def _rows(messages: Any) -> Iterable[Any]:
    """Return the messages one by one."""
    if isinstance(messages, (list, tuple, Iterator)):
        return messages
    try:
        view = memoryview(messages)
    except TypeError:
        return iter(messages)
    if view.ndim == 0 or (view.ndim == 1 and view.itemsize == 1):
        raise TypeError("send_many takes several messages, and these bytes are one; use send, or an array of rows")
    flat = _contiguous(view).tobytes()
    size = len(flat) // view.shape[0] if view.shape[0] else 0
    return (flat[row * size : (row + 1) * size] for row in range(view.shape[0]))

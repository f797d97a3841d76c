"""The fake backend: the ring's sockets on a bus inside the process, in virtual time. The contracts are in the ring's
stubs (publisher.pyi, subscriber.pyi); where this backend promises less, tests/contract/conftest.py says so.

A subscriber that waits in vain lets virtual time pass; only in a simulation (msgq.simulation) does anybody else run
meanwhile. So one thread uses a bus: sockets of other threads cannot wake it.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgq import naming
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    InvalidValueError,
    MessageSizeError,
    MessageTooLargeError,
    MultiplePublishersError,
    WaitTimeoutError,
)
from msgq.impl.bus import WRITERS_MAX, Entry, Inbox, Topic, Writer, current_bus
from msgq.impl.clock import NS
from msgq.impl.context import Context
from msgq.schema import Schema
from msgq.stats import PublisherStats, SubscriberStats

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]

FOR_EVER = -1
TIMEOUT_MAX_MS = 2**31 - 1
NS_PER_MS = 1_000_000
SEND_IN_PROGRESS_NS = NS

# What a socket's one look finds when it may not be used; see PubSocket._claim and SubSocket._queue.
_CLOSED = Writer()
_CLOSED.counts = (0, 0)
_RESERVED = Writer()
_NOTHING: deque[Entry] = deque(maxlen=0)
_NOWHERE = Topic("", 1024, lambda _: _NOTHING.append)


def _closed_error(endpoint: str) -> EndpointClosedError:
    return EndpointClosedError("is closed, or was never connected; call connect() first", endpoint)


def _check_connect(context: Context, endpoint: str | bytes, closed: bool, before: str) -> str:
    """Return the endpoint's name, if a socket may connect there now."""
    if not isinstance(context, Context):
        raise TypeError(f"context is a Context, not {type(context).__name__}")
    name = naming.endpoint_name(endpoint)
    if context.closed:
        raise InvalidValueError("the context was terminated; make a new one", name)
    if not closed:
        raise InvalidValueError("the socket is connected already; close it first", before)
    return name


def _timeout_ms(timeout: int, endpoint: str = "") -> int:
    milliseconds = index(timeout)
    if milliseconds != FOR_EVER and not 0 <= milliseconds <= TIMEOUT_MAX_MS:
        text = f"a time-out of {timeout} ms is not possible; give 0 to {TIMEOUT_MAX_MS}, or -1 to wait for ever"
        raise InvalidValueError(text, endpoint)
    return milliseconds


def _own_bytes(data: Any) -> bytes:
    """Return a copy of any contiguous buffer. (bytes() takes numbers, memoryview() refuses NumPy's datetimes.)"""
    return b"".join((data,))


def _fill(buffer: Any, data: bytes) -> int:
    """Write into any writable, contiguous buffer as much as it takes, and return how much that was."""
    return BytesIO(data).readinto(buffer)


class _Socket:
    """What both kinds have in common."""

    __slots__ = ("__weakref__", "_endpoint")

    def __init__(self) -> None:
        self._endpoint = ""

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """The endpoint's name; "" before the first `connect`."""
        return self._endpoint

    def close(self) -> None:
        """Leave."""
        raise NotImplementedError


class PubSocket(_Socket):
    """Publishes messages on one endpoint. See publisher.pyi for the contract of each method.

    One comparison of `_claim` with the topic's writer finds a socket that is closed, reserved, or was taken over.
    """

    __slots__ = ("_bus", "_claim", "_topic", "_writer")

    def __init__(self) -> None:
        super().__init__()
        self._bus = current_bus()
        self._topic = _NOWHERE
        self._writer = self._claim = _CLOSED

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.stats().messages} messages published"
        return f"<msgq fake PubSocket {self._endpoint!r}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or was never connected."""
        return self._claim is _CLOSED

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
    ) -> None:
        """Become the endpoint's publisher. `schema` is checked and forgotten: nobody else could look at it."""
        name = _check_connect(context, endpoint, self.closed, self._endpoint)
        if schema is not None and not isinstance(schema, Schema):
            raise TypeError(f"a schema is a msgq.Schema, not {type(schema).__name__}")
        bus = current_bus()
        topic = bus.topic(name, segment_size, mode)
        if topic.writers == WRITERS_MAX:
            text = f"{WRITERS_MAX} publishers of it are open; close those that were taken over"
            raise MultiplePublishersError(text, name)
        former = topic.writer
        if former is not None and former.reserved:
            bus.wait(lambda: not former.reserved, SEND_IN_PROGRESS_NS, f"connecting to {name!r}")
            if former.reserved:
                text = f"process {os.getpid()} has been in the middle of a send (or a reserve) for 1 s"
                raise MultiplePublishersError(f"{text}; end it, then connect again", name)
        self._bus, self._topic, self._endpoint = bus, topic, name
        self._writer = self._claim = Writer()
        topic.writers += 1
        topic.claim(self._writer)
        bus.opened(self)

    def close(self) -> None:
        """Leave; what was published stays readable. An open reservation is abandoned."""
        if self.closed:
            return
        self._claim = _CLOSED
        self._writer.reserved = False
        self._topic.writers -= 1
        if self._topic.writer is self._writer:
            self._topic.release()

    def _check(self) -> None:
        if self._topic.writer is not self._claim:
            raise self._refusal()

    def _refusal(self) -> Exception:
        if self._claim is _CLOSED:
            return _closed_error(self._endpoint)
        if self._claim is _RESERVED:
            return ConcurrentUseError("a reservation is open; leave its with block first", self._endpoint)
        who = f"process {os.getpid()}" if self._topic.writer else "nobody any more"
        return MultiplePublishersError(f"another publisher took over: {who}; nothing was sent", self._endpoint)

    def send(self, data: ReadableBuffer | npt.NDArray[Any], /) -> None:
        """Publish one message."""
        message = data if type(data) is bytes else _own_bytes(data)
        topic = self._topic
        if topic.writer is not self._claim:
            raise self._refusal()
        size = len(message)
        cursor = topic.position
        position = cursor + (size + 15 & ~7)
        if position > topic.granted:
            position = topic.extend(size)
        topic.position = position
        topic.messages += 1
        topic.bytes += size
        topic.deliver((cursor, message))

    def send_many(self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /) -> int:
        """Publish several messages, and return how many."""
        self._check()
        rows = None if isinstance(messages, (list, tuple, Iterator)) else _rows(messages)
        count = 0
        several: Iterable[Any] = messages if rows is None else rows
        for message in several:
            self.send(message)
            count += 1
        return count

    def reserve(self, size: int) -> Reservation:
        """Write one message in place: ``with pub.reserve(size) as view: ...``."""
        self._check()
        if size < 0:
            raise InvalidValueError(f"a message cannot have {size} bytes", self._endpoint)
        return Reservation(self, size)

    def all_readers_updated(self) -> bool:
        """Tell whether every living subscriber has read all that was published. False when there is none."""
        self._check_open()
        attached, updated = self._topic.readers()
        return 0 < attached == updated

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until subscribers are there, or up to date. No `interval` passes between two looks."""
        if (timeout is not None and not timeout >= 0) or not interval > 0 or (n is not None and n < 0):
            text = f"timeout={timeout} (seconds, None for ever), interval={interval} (> 0 seconds), n={n}: not possible"
            raise InvalidValueError(text, self._endpoint)
        self._check_open()

        def satisfied() -> bool:
            attached, updated = self._topic.readers()
            return attached >= n if n is not None else 0 < attached == updated

        if not satisfied() and timeout != 0:
            timeout_ns = None if timeout is None or math.isinf(timeout) else round(timeout * NS)
            self._bus.wait(lambda: self.closed or satisfied(), timeout_ns, f"wait_for_readers() of {self._endpoint!r}")
            self._check_open()
        if not satisfied():
            attached, updated = self._topic.readers()
            wanted = f"{n} attached" if n is not None else "at least one, and all up to date"
            text = f"after {timeout} s {attached} subscribers are attached, {updated} up to date; wanted: {wanted}"
            raise WaitTimeoutError(text, self._endpoint)

    def _check_open(self) -> None:
        """As `_check`, but who was taken over may still look."""
        if self._claim is _CLOSED or self._claim is _RESERVED:
            raise self._refusal()

    def stats(self) -> PublisherStats:
        """Return how much was published on this endpoint by this publisher and its forerunners."""
        counts = self._writer.counts
        messages, size = (self._topic.messages, self._topic.bytes) if counts is None else counts
        return PublisherStats(self._endpoint, messages, size)


def _rows(messages: Any) -> list[bytes] | None:
    """Return the rows of an array as messages; None: it is an iterable of messages."""
    try:
        view = memoryview(messages)
    except TypeError:
        return None
    except ValueError:  # NumPy exports datetimes only without their type
        view = memoryview(messages.view(f"V{messages.itemsize}"))
    if view.ndim == 0 or (view.ndim == 1 and view.itemsize == 1):
        raise TypeError("send_many takes several messages, and these bytes are one; use send, or an array of rows")
    if not view.c_contiguous:
        raise BufferError("the array's rows do not follow one another in memory; make a C-contiguous copy")
    data, count = view.tobytes(), len(view)
    size = len(data) // count if count else 0
    return [data[i * size : (i + 1) * size] for i in range(count)]


class Reservation:
    """Room for one message, to be written in place: ``with pub.reserve(size) as view``."""

    def __init__(self, socket: PubSocket, size: int) -> None:
        self._socket, self._size = socket, size

    def __enter__(self) -> memoryview:
        socket = self._socket
        socket._check()
        socket._topic.check_size(self._size)
        self._buffer = bytearray(self._size)
        self._view = memoryview(self._buffer)
        socket._writer.reserved = True
        socket._claim = _RESERVED
        return self._view

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        socket = self._socket
        with suppress(BufferError):  # an array made from it still lives
            self._view.release()
        if socket._claim is not _RESERVED:
            raise _closed_error(socket.endpoint)
        socket._writer.reserved = False
        socket._claim = socket._writer
        if kind is None:
            socket.send(bytes(self._buffer))


class SubSocket(_Socket):
    """Receives the messages of one endpoint. See subscriber.pyi for the contract of each method.

    `_queue` is the inbox's while a plain receive may take from it, otherwise an empty one: a look at it tells both.
    """

    __slots__ = ("_bus", "_inbox", "_queue", "_timeout_ms", "_waited_for")

    def __init__(self) -> None:
        super().__init__()
        self._bus = current_bus()
        self._inbox: Inbox | None = None
        self._queue = _NOTHING
        self._timeout_ms = FOR_EVER
        self._waited_for = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.stats().received} messages received"
        return f"<msgq fake SubSocket {self._endpoint!r}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or was never connected."""
        return self._inbox is None or self._inbox.closed

    @property
    def conflate(self) -> bool:
        """Whether `receive` passes over all but the newest message."""
        return self._inbox is not None and self._inbox.conflate

    @property
    def lost(self) -> int | None:
        """Messages that were published after `connect` and passed over, by conflating, being lapped, or a fault."""
        return 0 if self._inbox is None else self._inbox.lost

    def stats(self) -> SubscriberStats:
        """Return what this socket has received and lost since it connected."""
        inbox = self._inbox
        if inbox is None:
            return SubscriberStats(self._endpoint, 0, 0, 0)
        return SubscriberStats(self._endpoint, inbox.received, inbox.lost, inbox.resets)

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
    ) -> None:
        """Subscribe from now on. A passive subscriber is not seen by `wait_for_readers`, and waits like any other."""
        name = _check_connect(context, endpoint, self.closed, self._endpoint)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"an address is str or bytes, not {type(address).__name__}")
        naming.spin_us(spin_us, name)
        bus = current_bus()
        topic = bus.existing_topic(name) if passive else bus.topic(name, segment_size, mode)
        self._bus, self._endpoint = bus, name
        self._inbox = Inbox(topic, bool(conflate), bool(passive))
        self._waited_for = False
        self._unlock()
        bus.opened(self)

    def close(self) -> None:
        """Leave. Ends a wait of another node of a simulation, which gets `EndpointClosedError`."""
        if self._inbox is not None and not self._inbox.closed:
            self._inbox.close()
            self._queue = _NOTHING

    def setTimeout(self, timeout: int) -> None:
        """Choose how long a receive waits for a message, in milliseconds; -1: for ever."""
        self._timeout_ms = _timeout_ms(timeout, self._endpoint)

    # ---- receiving ----

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """Take the next message, or the newest if the socket conflates."""
        queue = self._queue
        if queue:
            self._inbox.received += 1  # type: ignore[union-attr]  # whose queue it is
            return queue.popleft()[1]
        found = self._find(non_blocking)
        return None if found is None else found.take()

    def _enter(self) -> Inbox:
        """Return the inbox, if this socket may be used now."""
        if self._inbox is None or self._inbox.closed:
            raise _closed_error(self._endpoint)
        if self._waited_for:
            text = "is in use by another thread; a socket serves one thread at a time"
            raise ConcurrentUseError(text, self._endpoint)
        return self._inbox

    def _find(self, non_blocking: bool) -> Inbox | None:
        """Return the inbox when it has a message, waiting for one if wanted."""
        inbox = self._enter()
        if inbox.look():
            return inbox
        if non_blocking or self._timeout_ms == 0:
            return None
        _wait_ready([self], self._timeout_ms, f"receive() on {self._endpoint!r}")
        return inbox if inbox.look() else None

    def _unlock(self) -> None:
        inbox = self._inbox
        self._queue = _NOTHING if inbox is None or inbox.conflate or inbox.closed else inbox.queue

    def receive_many(self, max_messages: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the messages that are pending, oldest first."""
        most = self._most(max_messages)
        inbox = self._enter() if not wait_for_one or most == 0 else self._find(False)
        messages: list[bytes] = []
        while inbox is not None and len(messages) < most and inbox.look():
            messages.append(inbox.take())
        return messages

    def _most(self, max_messages: int | None) -> float:
        if max_messages is None:
            return math.inf
        if max_messages < 0:
            raise InvalidValueError(f"max_messages is {max_messages}; give 0 or more, or None for all", self._endpoint)
        return max_messages

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into memory of the caller's."""
        _fill(buffer, b"")  # refuses what is not writable or not contiguous
        room = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        inbox = self._find(non_blocking)
        if inbox is None:
            return None
        size = len(inbox.peek())
        if size > room:
            text = f"the message has {size} bytes, the buffer {room}; it stays for the next call"
            raise MessageTooLargeError(text, self._endpoint)
        return _fill(buffer, inbox.take())

    def receive_array(
        self, dtype: npt.DTypeLike, max_messages: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages, each of which is one element, as an array."""
        import numpy  # the only method that needs it

        most = self._most(max_messages)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no bytes of its own; give one of a fixed size"
            raise InvalidValueError(text, self._endpoint)
        inbox = self._find(False) if wait_for_one and most else self._enter()
        messages: list[bytes] = []
        while inbox is not None and len(messages) < most and inbox.look():
            found, size = len(inbox.peek()), element.itemsize
            if found != size and not messages:
                text = f"the next message has {found} bytes, the dtype {size}; receive() takes it as it is"
                raise MessageSizeError(text, self._endpoint)
            if found != size:
                break
            messages.append(inbox.take())
        array = numpy.empty(len(messages), element)
        _fill(array, b"".join(messages))
        return array


def _wait_ready(sockets: list[SubSocket], timeout_ms: int, what: str) -> None:
    """Wait until one of the sockets has a message, at most so long."""
    bus = sockets[0]._bus
    inboxes = [socket._enter() for socket in sockets]
    for socket in sockets:
        socket._waited_for, socket._queue = True, _NOTHING
    try:
        timeout_ns = None if timeout_ms < 0 else timeout_ms * NS_PER_MS
        bus.wait(lambda: any(inbox.closed or inbox.look() for inbox in inboxes), timeout_ns, what)
    finally:
        for socket, inbox in zip(sockets, inboxes, strict=True):
            if socket._inbox is inbox:  # not closed and connected anew meanwhile
                socket._waited_for = False
                socket._unlock()
    for inbox in inboxes:
        if inbox.closed:
            raise EndpointClosedError("was closed while it was waited for", inbox.topic.endpoint)


class Poller:
    """Waits for several subscribers at once. See subscriber.pyi."""

    def __init__(self) -> None:
        self._sockets: list[SubSocket] = []

    def registerSocket(self, socket: SubSocket) -> None:
        """Wait for this one, too; the poller keeps it alive. Registering it again does nothing."""
        if not isinstance(socket, SubSocket):
            raise TypeError(f"a poller waits for SubSockets of its backend, not {type(socket).__name__}")
        if socket.closed:
            raise _closed_error(socket.endpoint)
        if not any(socket is known for known in self._sockets):
            self._sockets.append(socket)

    def poll(self, timeout: int) -> list[SubSocket]:
        """Return those of the registered sockets whose next receive returns at once, in their order."""
        milliseconds = _timeout_ms(timeout)
        ready = self._ready()
        if not ready and milliseconds and self._sockets:
            names = ", ".join(repr(socket.endpoint) for socket in self._sockets)
            _wait_ready(self._sockets.copy(), milliseconds, f"poll() on {names}")
            ready = self._ready()
        return ready

    def _ready(self) -> list[SubSocket]:
        return [socket for socket in self._sockets if socket._enter().look()]

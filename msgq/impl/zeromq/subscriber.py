"""Subscriber's socket: a SUB for all messages. sub_connection.py has its connection."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Self

import zmq

from msgq.common.stats.topic import SubscriberStats, Tracked
from msgq.errors import InvalidValueError, MessageSizeError, MessageTooLargeError
from msgq.impl.base.argument_checks import (
    check_limit,
    check_non_blocking,
    timeout_ms,
    zmq_untracked_error,
)
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.sockets.pyzmq_names import PyzmqReceiver
from msgq.impl.zeromq.sub_connection import ZMQ_NOBLOCK, SubConnection

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import WriteableBuffer


BATCH_MESSAGES_MAX = 100_000  # messages; taking "all" ends there, so that it ends however fast they come


@add_advice
class SubSocket(PyzmqReceiver, SubConnection):
    """Receives the messages of one endpoint.

    The socket receives messages that are published after its subscription has reached the publisher. `connect` does not
    wait for this, but `wait_for_readers` of the publisher does. Messages are lost if the queues between both are full,
    and between two publishers. The number of lost messages is unknown here. A received message is never torn, repeated,
    or out of order.

    One thread at a time may use a socket; a second thread gets `ConcurrentUseError`, except in `close`. After a fork,
    the child's socket reconnects at its first call, and the parent's socket continues. If the socket is closed or was
    never connected, receiving raises `EndpointClosedError`. Deleted sockets close, and open sockets close when the
    process ends.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._received_count} messages received"
        return f"<msgq SubSocket {self.endpoint!r}, {state}>"

    @property
    def lost(self) -> int | None:
        """Messages skipped by conflation, without messages lost on the way. None: unknown."""
        return self._skipped_count if self._conflate else None

    def setTimeout(self, timeout: float) -> None:
        """Set the default timeout of receives, in milliseconds (compatibility: stock's name).

        `receive(timeout=)` takes seconds.

        Args:
            timeout: milliseconds, 0 to 2**31 - 1, fractions are rounded up; -1, the default, waits forever. May be set
                before `connect`.

        Raises:
            InvalidValueError: any other value.
        """
        self._timeout_ms = timeout_ms(timeout, self.endpoint)

    @property
    def rcvtimeo(self) -> int:
        """Timeout in milliseconds (compatibility: pyzmq's name)."""
        return self._timeout_ms

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None:
        self.setTimeout(timeout)

    def _receive_next(self, non_blocking: bool) -> bytes:
        """Return the next message in all states of the socket. Raises zmq.Again. The caller has acquired the guard."""
        try:
            return self._take_message(non_blocking)
        finally:
            self._rearm_fd()

    def _take_message(self, non_blocking: bool) -> bytes:
        message, self._held_message = self._held_message, None
        self._update_direct_receive()
        if message is None:
            message = self._receive_one(non_blocking)
        if self._conflate:
            for _ in range(BATCH_MESSAGES_MAX):
                if not zmq.zmq_poll([(self._socket, zmq.POLLIN)], 0):
                    break
                message = self._zmq_recv(ZMQ_NOBLOCK)
                self._skipped_count += 1
        return message

    def _receive_pending(self, limit: int, wait_for_one: bool, size: int | None = None) -> list[bytes]:
        """Return up to `limit` pending messages, and stop before a message that does not have `size` bytes.

        The message of another size is kept for the next call. The caller has acquired the guard.
        """
        messages: list[bytes] = []
        try:
            while len(messages) < limit:
                message = self._take_message(not wait_for_one or bool(messages))
                if size is not None and len(message) != size:
                    self._held_message = message
                    break
                messages.append(message)
                if self._conflate:
                    break
        except zmq.Again:
            pass
        finally:
            self._rearm_fd()  # once for all: it costs more than a message does
        self._received_count += len(messages)
        self._update_direct_receive()
        return messages

    def _batch_limit(self, limit: int | None) -> int:
        return BATCH_MESSAGES_MAX if limit is None else check_limit(limit, self.endpoint)

    @property
    def tracked(self) -> bool:
        """Always False: messages have no timestamps here."""
        return False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Raise `StateError`, because messages have no timestamps here."""
        check_non_blocking(non_blocking, self.endpoint)
        self._check_open()
        raise zmq_untracked_error(self.endpoint)

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the pending messages, oldest first.

        Args:
            limit: maximum number of messages; None: all arrived messages, up to 100,000.
            wait_for_one: True: if no message is pending, wait for the first one until the default timeout.

        Raises:
            InvalidValueError: `limit` is negative.
        """
        return self._call_exclusively(self._receive_pending, self._batch_limit(limit), wait_for_one)

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into your own memory.

        Args:
            buffer: writable, contiguous bytes.
            non_blocking: True: do not wait.

        Returns:
            Size of the message in bytes; None at the timeout. Bytes of `buffer` after the message keep their content.

        Raises:
            MessageTooLargeError: the message is larger than the buffer. The next call finds it again.
            TypeError, BufferError: `buffer` is not writable, or not contiguous.
        """
        target: Any = buffer  # type checkers accept an array as a buffer only from Python 3.12
        view = memoryview(target)
        if view.readonly or not view.c_contiguous:
            raise BufferError("buffer is read-only or not contiguous; give writable, contiguous bytes")
        message = SubSocket.receive(self, non_blocking)  # the bytes, also in a subclass that decodes
        if message is None:
            return None
        if len(message) > view.nbytes:
            self._held_message = message
            self._update_direct_receive()
            self._call_exclusively(self._rearm_fd)
            self._received_count -= 1
            text = (
                f"message has {len(message)} bytes, but the buffer has {view.nbytes}; "
                "the message stays for the next call"
            )
            raise MessageTooLargeError(text, self.endpoint)
        _copy_to_buffer(view, message)
        return len(message)

    def receive_array(
        self, dtype: npt.DTypeLike, limit: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages as an array with one element each.

        Args:
            dtype: dtype of one message, with a fixed size and without Python objects. The bytes are not converted.
            limit: maximum number of messages; None: all arrived messages, up to 100,000.
            wait_for_one: True: if no message is pending, wait for the first one until the default timeout.

        Returns:
            A new array of shape (messages,). The array ends before the first message of another size. Empty without
            messages.

        Raises:
            MessageSizeError: the first message does not have the size of `dtype`. The next call finds it again.
            InvalidValueError: `limit` is negative, or `dtype` has no bytes.
        """
        import numpy  # the only method that needs it

        message_limit = self._batch_limit(limit)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no fixed size; give one with a fixed size"
            raise InvalidValueError(text, self.endpoint)
        messages = self._call_exclusively(self._receive_pending, message_limit, wait_for_one, element.itemsize)
        if not messages and message_limit and self._held_message is not None:
            text = f"next message has {len(self._held_message)} bytes, but the dtype has {element.itemsize}"
            raise MessageSizeError(f"{text}; use receive() instead", self.endpoint)
        array = numpy.empty(len(messages), element)
        data = b"".join(messages)
        ctypes.memmove(array.ctypes.data, data, len(data))
        return array

    def stats(self) -> SubscriberStats:
        """Return the counters since `connect`."""
        return SubscriberStats(self.endpoint, self._received_count, self.lost, 0)


def _copy_to_buffer(view: memoryview, message: bytes) -> None:
    """Copy a message to the start of a sufficiently large buffer."""
    if message:  # an empty buffer has no address
        start = (ctypes.c_char * len(message)).from_buffer(view)
        start.raw = message

"""A client: sends jobs to the workers of a queue, and waits for their results."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgq.common.closing import ClosingContext
from msgq.errors import (
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    JobCancelledError,
    JobFailedError,
    MessageTooLargeError,
    MsgqError,
    QueueFullError,
    WaitTimeoutError,
)
from msgq.impl import backend
from msgq.impl.base.argument_checks import refuse_queue_name, timeout_ns
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.workqueue.options import MESSAGES_MAX
from msgq.workqueue.envelope import (
    ENVELOPE_BYTES_MAX,
    Envelope,
    EnvelopeType,
    join_envelope,
    name_reply_queue,
    split_envelope,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer

    from msgq.impl.workqueue import Message, MessageQueue

_WAKE_TIMEOUT_S = 1.0  # maximum wait for a thread that a signal handler interrupted before it woke others


@add_advice
class JobFuture:
    """The future result of a job. Only `JobClient.submit` creates this object. Threads may share the object.

    A future without references ignores its result.
    """

    def __init__(self, client: JobClient) -> None:
        self._client = client
        self._number = 0  # number of the call; 0: not registered
        self._reply: Envelope | None = None
        self._is_cancelled = False

    def __repr__(self) -> str:
        state = "cancelled" if self._is_cancelled else "no result"
        if self._reply is not None:
            state = self._reply.type.name.lower()
        return f"<msgq JobFuture of {self._client.queue_name!r}, job {self._number}, {state}>"

    def is_done(self) -> bool:
        """Return True if the job has a result or an error, or was cancelled. The call does not wait.

        Raises:
            EndpointClosedError: the client is closed, and had not received the result.
            ForkedSocketError: the client belongs to the parent process.
        """
        return self._client._wait_until(self._is_finished, 0)

    def result(self, timeout: float | None = None) -> bytes:
        """Wait for the result of the job, and return the bytes. Later calls return the same bytes.

        Args:
            timeout: seconds to wait; 0 does not wait, None waits forever. If a worker dies, another worker repeats the
                job, and the call waits for the second result.

        Raises:
            JobFailedError: the worker's function raised an error at each try.
            JobCancelledError: `cancel` removed the job.
            WaitTimeoutError: no result came in time. You may call `result` again.
            EndpointClosedError, ForkedSocketError: as `is_done`.
        """
        timeout_ns(timeout, self._client.queue_name)
        is_finished, reply = self._client._wait_until(self._is_finished, timeout), self._reply
        if is_finished and reply is None:
            raise JobCancelledError("job was cancelled, so it has no result", self._client.queue_name)
        if reply is None:
            raise WaitTimeoutError(f"job has no result after {timeout} s", self._client.queue_name)
        if reply.type == EnvelopeType.ERROR:
            error = JobFailedError(f"job failed: {reply.text}", self._client.queue_name)
            error.reason = reply.text
            raise error
        return reply.data

    def cancel(self) -> bool:
        """Remove the job from the queue, if no worker has the job. The call does not wait.

        `cancel` also removes jobs with a delay, and failed jobs that wait for the next try. The call compares all
        messages in the queue: about 0.05 us for each message.

        Returns:
            True if the job was removed, now or earlier, and `result` raises JobCancelledError. False: a worker has the
            job, or the job has ended.

        Raises:
            QueueAccessError: the handle of the queue was opened with ``read=False``.
            EndpointClosedError: the handle of the queue is closed.
            ForkedSocketError: the client belongs to the parent process.
        """
        return self._is_cancelled or self._client._cancel_job(self)

    def _is_finished(self) -> bool:
        return self._reply is not None or self._is_cancelled


@add_advice
class JobClient(ClosingContext):
    """Sends jobs to the workers of a queue (`Worker`), and receives the results.

    The results arrive in a queue of this client, ``"NAME:replies:PID-ID"``. `close`, the end of the ``with`` block and
    the end of the process remove this queue.

    Threads: several threads may share a client and its futures.

    Fork: the client belongs to the parent. Create a client in the child.

    Args:
        queue: the open queue of the workers.
        max_pending: maximum number of jobs without a result, 1 to 65536. At the limit, `submit` waits.
        max_result_size: maximum bytes of a result; None: `max_message_size` of the queue.

    Raises:
        InvalidTypeError: `queue` is a name instead of a queue.
        InvalidValueError: a number is invalid.
        SegmentError, EndpointNameError: the queue of the results cannot be created, or its name is too long.
    """

    def __init__(self, queue: MessageQueue, *, max_pending: int = 128, max_result_size: int | None = None) -> None:
        refuse_queue_name(queue)
        if not 1 <= max_pending <= MESSAGES_MAX:
            raise InvalidValueError(f"max_pending is {max_pending}; give 1 to {MESSAGES_MAX}", queue.name)
        self._queue, self._max_pending = queue, max_pending
        self._client_id = _make_client_id(queue)
        result_size = queue.max_message_size if max_result_size is None else max_result_size
        if result_size < 0:
            raise InvalidValueError(f"max_result_size is {result_size}; give a number of bytes", queue.name)
        replies_name = name_reply_queue(queue.name, self._client_id)
        try:
            self._replies = type(queue)(
                replies_name,
                mode=queue.mode,
                max_messages=min(max_pending + 1, MESSAGES_MAX),  # with room for a wake message
                max_message_size=result_size + ENVELOPE_BYTES_MAX,
                prefix=queue.prefix,
                create=True,
            )
            self._replies.send(b"")
            self._replies.receive(0)  # workers recognize the client's handle by this received message
            self._remove_replies = weakref.finalize(self, _remove_reply_queue, self._replies)
        except MsgqError:
            raise
        except BaseException:  # a signal handler raised after the queue was created
            with contextlib.suppress(MsgqError):
                queue.unlink_name(replies_name, queue.prefix)
            raise
        self._belongs_to_parent = False
        _clients.add(self)
        # A lock in C: no signal handler runs between its acquisition and the `with` block.
        self._lock = threading.RLock()
        self._waiters: set[threading.Lock] = set()  # a locked lock of each thread that waits for the receiving thread
        self._is_receiving = False  # one thread receives the replies of all waiting threads
        self._received: list[Message | None] = []  # the result of the latest `receive`; empty: delivered
        self._has_wake_message = False  # the queue of the results has a message that wakes the receiving thread
        self._last_number = 0
        self._pending_numbers: set[int] = set()
        self._futures: weakref.WeakValueDictionary[int, JobFuture] = weakref.WeakValueDictionary()

    def __repr__(self) -> str:
        state = f"{len(self._pending_numbers)} pending" if self._remove_replies.alive else "closed"
        return f"<msgq JobClient of {self.queue_name!r}, {state}>"

    @property
    def queue_name(self) -> str:
        """Name of the queue of the workers."""
        return self._queue.name

    def submit(
        self,
        data: ReadableBuffer | npt.NDArray[Any],
        priority: int = 0,
        *,
        timeout: float | None = None,
        delay: float | None = None,
    ) -> JobFuture:
        """Send a job, and return its future.

        Args:
            data: any object with contiguous bytes. The function of the `Worker` gets these bytes.
            priority: as in `MessageQueue.send`.
            delay: as in `MessageQueue.send`.
            timeout: seconds to wait while the queue is full, or while `max_pending` jobs have no result; 0 does not
                wait, None waits forever.

        Raises:
            QueueFullError: the queue, or the number of pending jobs, stayed at its limit.
            MessageTooLargeError: the data and the address of the client exceed `max_message_size` of the queue.
            InvalidTypeError: the data has no bytes.
            EndpointClosedError: the client is closed.
            ForkedSocketError: the client belongs to the parent process.
            Exception: errors of `MessageQueue.send`.
        """
        timeout_ns(timeout, self.queue_name)
        deadline = None if timeout is None else backend.monotonic() + timeout
        future = JobFuture(self)
        try:
            if not self._wait_until(lambda: self._register_future(future), timeout):
                text = f"{self._max_pending} jobs have no result yet, the limit (max_pending); the job was not sent"
                raise QueueFullError(text, self.queue_name)
            if not self._remove_replies.alive:
                raise EndpointClosedError("client is closed; create a client", self.queue_name)
            message = join_envelope(data, EnvelopeType.CALL, future._number, self._client_id)
            self._check_size(len(message))
            remaining = None if deadline is None else max(deadline - backend.monotonic(), 0)
            self._queue.send(message, priority, timeout=remaining, delay=delay)
        except BaseException:
            self._pending_numbers.discard(future._number)
            raise
        return future

    def close(self) -> None:
        """Remove the queue of the results. Workers drop later results. In a forked child, do nothing.

        If a signal handler raises during the call, call `close` again.
        """
        if self._remove_replies.alive:
            _remove_reply_queue(self._replies)
            self._remove_replies.detach()  # last, so that an interrupted removal can be repeated

    def _cancel_job(self, future: JobFuture) -> bool:
        """Remove the job of a future from the queue. Return False if a worker has the job, or the job has ended."""
        self._check_owner()
        ending = join_envelope(None, EnvelopeType.CALL, future._number, self._client_id)
        with self._lock:  # another thread may cancel the same job
            if self._queue._remove_waiting_message(ending) and future._reply is None:
                self._end_cancelled_job(future)
            return future._is_cancelled

    def _end_cancelled_job(self, future: JobFuture) -> None:
        """Wake the threads that wait for a job that was removed. Called under the lock."""
        future._is_cancelled = True
        self._pending_numbers.discard(future._number)
        self._wake_waiters()
        if self._is_receiving and not self._has_wake_message:  # the receiving thread may wait for this job
            # a full queue needs no wake message, because the receiving thread gets another message
            with contextlib.suppress(QueueFullError, EndpointClosedError):
                self._replies.send(b"", timeout=0)
                self._has_wake_message = True

    def _check_owner(self) -> None:
        if self._belongs_to_parent:
            raise ForkedSocketError("client belongs to the parent process; create a client here", self.queue_name)

    def _register_future(self, future: JobFuture) -> bool:
        """Give a future its number under the lock. Return False at the limit of pending jobs."""
        if len(self._pending_numbers) >= self._max_pending:
            return False
        self._last_number = future._number = self._last_number + 1
        self._futures[future._number] = future
        self._pending_numbers.add(future._number)
        return True

    def _check_size(self, message_bytes: int) -> None:
        limit = self._queue.max_message_size
        if message_bytes > limit:
            address_bytes = len(join_envelope(None, EnvelopeType.CALL, 0, self._client_id))
            text = f"a job of {message_bytes - address_bytes} bytes does not fit: at most {limit - address_bytes} are"
            text = f"{text} allowed (max_message_size minus {address_bytes} bytes for the client's address)"
            raise MessageTooLargeError(text, self.queue_name)

    def _wait_until(self, is_finished: Callable[[], bool], timeout: float | None) -> bool:
        """Receive replies until a condition is true. Return False at the timeout."""
        self._check_owner()
        deadline = None if timeout is None else backend.monotonic() + timeout
        while True:
            with self._lock:
                if is_finished():
                    return True
            remaining = None if deadline is None else max(deadline - backend.monotonic(), 0)
            if not self._await_reply(remaining):
                with self._lock:
                    return is_finished()

    def _await_reply(self, timeout: float | None) -> bool:
        """Receive a reply, or wait for the thread that does. Return False at the timeout.

        A signal handler may raise at each call. The next call then delivers the reply, and another thread may receive.
        """
        waiter = threading.Lock()
        waiter.acquire()
        is_receiver = False
        try:
            with self._lock:
                is_receiver = not self._is_receiving  # no signal handler runs before the next line
                self._is_receiving = True
                if not is_receiver:
                    self._waiters.add(waiter)
            return self._receive_reply(timeout) if is_receiver else _wait_for_lock(waiter, timeout)
        finally:
            if is_receiver:
                self._is_receiving = False  # first, because a signal handler may interrupt the rest
                with self._lock:
                    self._wake_waiters()
            else:
                with self._lock:  # without the lock, `_wake_waiters` may find no waiter to pop
                    self._waiters.discard(waiter)

    def _wake_waiters(self) -> None:
        """Let the waiting threads check their conditions. Called under the lock."""
        while self._waiters:
            self._waiters.pop().release()

    def _receive_reply(self, timeout: float | None) -> bool:
        """Receive one reply, and give the reply to its future. Return False at the timeout. One thread calls."""
        message = self._received[0] if self._received else None
        if message is None:
            # C code stores the reply. Between `receive` and an assignment, Python runs signal handlers.
            self._received[:] = map(self._replies.receive, (timeout,))
            message = self._received[0]
        if message is None:
            return False
        reply = split_envelope(message.data)
        with self._lock:
            self._has_wake_message &= reply.type != EnvelopeType.PLAIN
            future = self._futures.get(reply.number)
            if reply.number in self._pending_numbers and future is not None:
                future._reply = reply
            self._pending_numbers.discard(reply.number)  # a second reply of a repeated job changes nothing
        self._received.clear()  # last, so that an interrupted delivery is repeated
        return True


def _wait_for_lock(waiter: threading.Lock, timeout: float | None) -> bool:
    """Wait until another thread releases the lock. Return False at the timeout.

    A signal handler may interrupt the other thread before the release, so the wait ends after a while in any case.
    """
    is_last = timeout is not None and timeout <= _WAKE_TIMEOUT_S
    return waiter.acquire(timeout=timeout if timeout is not None and is_last else _WAKE_TIMEOUT_S) or not is_last


_clients: weakref.WeakSet[JobClient] = weakref.WeakSet()


def _disown_clients_in_child() -> None:
    for client in _clients:
        client._belongs_to_parent = True
        client._remove_replies.detach()


os.register_at_fork(after_in_child=_disown_clients_in_child)


def _make_client_id(queue: MessageQueue) -> str:
    """Return an id that no other client of the queue has. On a bus, it is equal in each run of a simulation."""
    if queue._bus is None:
        return f"{os.getpid()}-{secrets.token_hex(4)}"
    return str(queue._bus.clock.new_origin_time())


def _remove_reply_queue(replies: MessageQueue) -> None:
    with contextlib.suppress(MsgqError):  # `msgq clean` has removed it
        replies.unlink()
    replies.close()

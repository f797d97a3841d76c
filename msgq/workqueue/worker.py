"""A worker: takes the jobs of a queue, repeats failed jobs with growing delays, and sends results to clients."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidTypeError, InvalidValueError, IpcError, LeaseExpiredError
from msgq.impl.base.argument_checks import refuse_queue_name
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.workqueue.message import message as make_message
from msgq.impl.workqueue.options import O_CREAT, delay_ns
from msgq.workqueue.envelope import (
    ENVELOPE_BYTES_MAX,
    Envelope,
    EnvelopeType,
    describe_error,
    join_envelope,
    split_envelope,
)
from msgq.workqueue.reply_sender import REOPEN_SECONDS, ReplyQueueFullError, ReplySender

if TYPE_CHECKING:
    from msgq.impl.workqueue import Job, MessageQueue
    from msgq.impl.workqueue.message import Message

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkCounts:
    """Numbers of jobs of a `Worker`, by outcome.

    Attributes:
        succeeded: jobs whose function returned.
        retried: failed deliveries that were returned to the queue for a later try.
        failed: jobs that failed at their last try. Their errors went to their clients or to the dead letters.
        postponed: jobs that stay in the queue, because the dead letters or the client's queue of results had no room. A
            worker repeats the job after `max_backoff`.
        expired: jobs whose lease ended before their end. Another worker may have repeated the job.
        unanswered: results and errors that were dropped, because the client is gone.
    """

    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    postponed: int = 0
    expired: int = 0
    unanswered: int = 0


class _StopSignal(BaseException):
    """Ends a wait for a job, if a signal handler calls `Worker.stop`."""


@add_advice
class Worker:
    """Calls a function for each job of a queue, and repeats failed jobs with growing delays.

    A job succeeds if the function returns. If the function raises, the message returns to the queue, and any worker
    repeats the job after `backoff` seconds. Each further failure doubles the delay. Deliveries of killed workers count
    as tries. After the last try, the error goes to the client of the job (`JobClient`). Messages without a client move
    to the dead letters. A job is never lost, but can run twice.

    Threads: one worker per thread. Several workers may share one handle. Any thread may call `stop`.

    Fork: create the worker in the child.

    Args:
        queue: the open queue.
        function: takes a `Message`. For jobs of a `JobClient`, the function returns the result: an object with
            contiguous bytes, or None for no bytes. For other jobs, the returned value is ignored.
        retries: number of tries after the first try, 0 or more.
        backoff: delay after the first failure, in seconds.
        max_backoff: longest delay, in seconds.
        jitter: True: each delay is a random part of the computed delay, so that jobs that failed together do not return
            together. For repeatable tests, give a `random.Random` with a fixed seed.
        lease: seconds that the function may take; None: without limit. After the lease, another worker repeats the job.
        dead_letters: queue for messages that failed at each try; None: the queue ``"NAME.dead"``, which the first dead
            letter creates. `parse_dead_letter` returns the message and the reason.

    Attributes:
        counts: numbers of jobs by outcome; see `WorkCounts`.

    Raises:
        InvalidValueError, InvalidTypeError: an argument is invalid, or messages do not fit into `dead_letters`.
    """

    def __init__(
        self,
        queue: MessageQueue,
        function: Callable[[Message], Any],
        *,
        retries: int = 3,
        backoff: float = 1.0,
        max_backoff: float = 600.0,
        jitter: bool | Random = False,
        lease: float | None = None,
        dead_letters: MessageQueue | None = None,
    ) -> None:
        refuse_queue_name(queue)
        if not callable(function):
            raise InvalidTypeError(f"function is {function!r}; give a function that takes a message", queue.name)
        if not isinstance(retries, int) or retries < 0:
            raise InvalidValueError(f"retries is {retries!r}; give 0 or a larger whole number", queue.name)
        delay_ns(backoff, queue.name)
        delay_ns(max_backoff, queue.name)
        if not isinstance(jitter, (bool, Random)):
            raise InvalidTypeError(f"jitter is {jitter!r}; give True, False or a random.Random", queue.name)
        if dead_letters is not None and dead_letters.max_message_size < queue.max_message_size:
            text = f"dead_letters take messages of {dead_letters.max_message_size} bytes, but {queue.name!r} sends"
            text = f"{text} {queue.max_message_size}; create {dead_letters.name!r} with a larger max_message_size"
            raise InvalidValueError(text, queue.name)
        self._queue, self._function, self._lease = queue, function, lease
        self._retries, self._backoff, self._max_backoff = retries, backoff, max_backoff
        self._jitter_source = Random() if jitter is True else jitter or None
        self._dead_letters, self._opened_dead_letters = dead_letters, dead_letters is None
        self._reply_sender = ReplySender(queue)
        self._is_stopping = False
        self._waiting_thread: int | None = None
        self.counts: WorkCounts = WorkCounts()

    def __repr__(self) -> str:
        return f"<msgq Worker of {self._queue.name!r}, {self.counts.succeeded} succeeded, {self.counts.failed} failed>"

    def run(self, timeout: float | None = None) -> WorkCounts:
        """Work until no job arrives for `timeout` seconds, or until `stop`.

        KeyboardInterrupt, SystemExit and errors of the queue end the loop, too. The message of the current job then
        returns to the queue at once.

        Args:
            timeout: seconds to wait for the next job; 0: work until no job waits; None: forever. Delayed messages do
                not count as waiting.

        Returns:
            `counts`.
        """
        try:
            while (job := self._take_next_job(timeout)) is not None:
                self._do_job(job)
        finally:
            self._is_stopping, self._waiting_thread = False, None
            self._reply_sender.close()
            if self._opened_dead_letters and self._dead_letters is not None:
                self._dead_letters.close()
                self._dead_letters = None
        return self.counts

    def stop(self) -> None:
        """End `run` after the current job. A signal handler may call this method.

        If another thread calls `stop` while the worker waits, `run` ends after the next job, or at its timeout.
        """
        self._is_stopping = True
        if self._waiting_thread == threading.get_ident():
            self._waiting_thread = None  # raise once
            raise _StopSignal

    def _take_next_job(self, timeout: float | None) -> Job | None:
        if self._reply_sender.has_open_queues:
            first_timeout = REOPEN_SECONDS if timeout is None else min(timeout, REOPEN_SECONDS)
            job = self._take_job_until_stop(first_timeout)
            if job is not None:
                return job
            self._reply_sender.close()  # an idle worker keeps no reply queue of a dead client
            timeout = None if timeout is None else timeout - first_timeout
        return self._take_job_until_stop(timeout)

    def _take_job_until_stop(self, timeout: float | None) -> Job | None:
        """Take a job. If `stop` raises after the job was taken, return the job: its delivery counts as a try."""
        taken: list[Job | None] = []
        try:
            self._waiting_thread = threading.get_ident()  # first: a handler that runs later raises
            if not self._is_stopping:
                # C code appends the job. Between `take` and an assignment, Python runs signal handlers.
                taken.extend(map(partial(self._queue.take, lease=self._lease), (timeout,)))
            self._waiting_thread = None
        except _StopSignal:
            pass
        return taken[0] if taken else None

    def _do_job(self, job: Job) -> None:
        envelope = split_envelope(job.data)
        try:
            if job.deliveries > self._retries + 1:
                self._end_failed_job(job, envelope, f"delivered {job.deliveries} times without an end of the job", None)
                return
            try:
                self._call_function(job, envelope)
            except ReplyQueueFullError as error:
                self._postpone_job(job, error)
            except Exception as error:
                self._handle_failure(job, envelope, error)
            else:
                job.ack()
                self.counts.succeeded += 1
        except LeaseExpiredError as error:
            self.counts.expired += 1
            logger.warning("%s", error)
        except BaseException:
            with contextlib.suppress(IpcError):  # the job has ended, or the handle is closed
                job.nack()
            raise

    def _call_function(self, job: Job, envelope: Envelope) -> None:
        message = make_message(envelope.data, job.priority, job.deliveries, job.sent_time, job.origin_time)
        result = self._function(message)
        if envelope.type == EnvelopeType.CALL:
            is_sent = self._reply_sender.send(envelope.text, EnvelopeType.RESULT, envelope.number, result)
            self.counts.unanswered += not is_sent

    def _handle_failure(self, job: Job, envelope: Envelope, error: Exception) -> None:
        reason = describe_error(error)
        tries = self._retries + 1
        if job.deliveries > self._retries:
            self._end_failed_job(job, envelope, reason, error)
            return
        delay = min(self._max_backoff, self._backoff * 2 ** min(job.deliveries - 1, 64))
        if self._jitter_source is not None:
            delay *= self._jitter_source.random()
        text = "%r: try %d of %d failed: %s; next try in %g s"
        logger.warning(text, self._queue.name, job.deliveries, tries, reason, delay)
        job.nack(delay)
        self.counts.retried += 1

    def _end_failed_job(self, job: Job, envelope: Envelope, reason: str, error: Exception | None) -> None:
        """Send the error to the client, or the message to the dead letters. Then acknowledge.

        A kill before the acknowledgement leaves the message twice, never zero times.
        """
        logger.error("%r: job failed: %s", self._queue.name, reason, exc_info=error)
        try:
            if envelope.type != EnvelopeType.CALL or not self._send_error(envelope, reason):
                self._send_dead_letter(job, envelope, reason)
        except IpcError as send_error:
            self._postpone_job(job, send_error)
            return
        job.ack()
        self.counts.failed += 1

    def _postpone_job(self, job: Job, error: IpcError) -> None:
        """Keep a job in the queue whose result, error or dead letter has no room."""
        text = "%r: job stays in the queue, and is repeated in %g s: %s"
        logger.error(text, self._queue.name, self._max_backoff, error)
        job.nack(self._max_backoff)
        self.counts.postponed += 1

    def _send_error(self, envelope: Envelope, reason: str) -> bool:
        is_sent = self._reply_sender.send(envelope.text, EnvelopeType.ERROR, envelope.number, None, reason)
        self.counts.unanswered += not is_sent
        return is_sent

    def _send_dead_letter(self, job: Job, envelope: Envelope, reason: str) -> None:
        queue = self._queue
        if self._dead_letters is None:
            size = queue.max_message_size + ENVELOPE_BYTES_MAX
            self._dead_letters = type(queue)(
                f"{queue.name}.dead", O_CREAT, queue.mode, None, size, read=False, prefix=queue.prefix
            )
        letter = join_envelope(envelope.data, EnvelopeType.DEAD_LETTER, job.deliveries, reason)
        if len(letter) > self._dead_letters.max_message_size:
            letter = envelope.data  # without the reason
        self._dead_letters.send(letter, job.priority, timeout=0, origin_time=job.origin_time)

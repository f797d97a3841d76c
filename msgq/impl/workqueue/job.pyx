"""A message that was taken and is to be acknowledged. See job.pyi."""

from cython cimport no_gc_clear
from libc.stdint cimport uint64_t

from msgq.impl.base.liveness cimport fork_generation
from msgq.impl.workqueue.core cimport (
    MQ_EVENT_ACKNOWLEDGED, mq_queue_free, mq_queue_return, mq_queue_taken, mq_word_priority,
)
from msgq.impl.workqueue.handle cimport Handle

from msgq.errors import ForkedSocketError
from msgq.impl.workqueue import options


@no_gc_clear  # __dealloc__ needs the queue
cdef class Job:
    """See job.pyi."""
    cdef Handle _queue
    cdef mq_queue_taken _taken
    cdef uint64_t _uid          # of the row that took it
    cdef int _generation
    cdef bint _over
    cdef readonly bytes data

    def __cinit__(self):
        self._over = True  # until it has a queue

    def __init__(self):
        raise TypeError("a job comes from a queue's take()")

    def __dealloc__(self):
        if self._queue is not None and self._is_ours():
            mq_queue_return(&self._queue._h, self._taken.place, self._taken.word)
            if self._queue._h.log != NULL:
                self._queue._tell()

    def __repr__(self):
        if self._queue is None:
            return "<msgq Job of no queue>"
        return f"<msgq Job of {self._queue.endpoint!r}, {len(self.data)} bytes, {'over' if self._over else 'open'}>"

    @property
    def priority(self):
        return mq_word_priority(self._taken.key)

    @property
    def deliveries(self):
        return self._taken.deliveries

    @property
    def sent_time(self):
        return self._taken.sent_time

    @property
    def origin_time(self):
        return self._taken.origin_time

    cdef bint _is_ours(self) noexcept:
        """Whether the word may still be ours: neither over, nor a parent's, nor left by close."""
        return (not self._over and self._generation == fork_generation and self._queue._joined
                and self._queue._uid == self._uid)

    cdef int _check(self) except -1:
        if self._queue is None:
            raise TypeError("a job comes from a queue's take()")
        if self._over:
            raise options.over_error(self._queue._endpoint)
        if self._generation != fork_generation:
            text = "the job is the parent's, who acknowledges it; take another one"
            raise ForkedSocketError(text, self._queue._endpoint)
        if not self._is_ours():
            raise options.left_error(self._queue._endpoint)
        return 0

    cdef int _begin_end(self) except -1:
        """See to it that it can end, and that its end can be told."""
        self._check()
        if self._queue._h.log != NULL:
            self._queue._prepare(False)
            self._check()  # which may have run anything
        self._over = True
        return 0

    def ack(self):
        self._begin_end()
        if not mq_queue_free(&self._queue._h, &self._taken):
            self._queue._file.check_whole()
            raise options.lease_error(self._queue._endpoint)
        if self._queue._h.log != NULL:
            self._queue._tell_taken(MQ_EVENT_ACKNOWLEDGED, &self._taken)

    def nack(self):
        self._begin_end()
        mq_queue_return(&self._queue._h, self._taken.place, self._taken.word)  # unless its lease did
        if self._queue._h.log != NULL:
            self._queue._tell()

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, kind, *_):
        if self._over or self._generation != fork_generation:
            return  # a child that leaves its parent's block leaves the job to the parent
        if kind is None:
            self.ack()
        elif self._is_ours():  # else it is back already
            self.nack()


cdef object new_job(Handle queue, const mq_queue_taken *taken):
    """Return a job for what was taken; without memory for it the message goes back."""
    cdef Job job = Job.__new__(Job)
    job._queue, job._taken = queue, taken[0]
    job._uid, job._generation = queue._uid, queue._generation  # a finalizer that just ran may have forked
    job.data = job._queue._copy(taken)
    job._over = False
    return job

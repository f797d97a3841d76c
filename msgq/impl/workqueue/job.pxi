"""A taken message that waits for its acknowledgement. See core.pyi."""


@no_gc_clear  # __dealloc__ needs the queue
cdef class Job:
    """See core.pyi.

    The lock of the queue's handle guards the handle and the job, because other threads may use the handle.
    """
    cdef QueueHandle _queue
    cdef mq_queue_taken_message _delivery
    cdef uint64_t _uid  # uid of the row that took the message
    cdef int _fork_generation
    cdef bint _is_ended
    cdef readonly bytes data

    def __cinit__(self):
        self._is_ended = True  # a job without a queue counts as ended

    def __init__(self):
        raise TypeError("jobs cannot be created directly; call the queue's take()")

    def __dealloc__(self):
        if self._queue is not None and not self._is_ended:
            with cython.critical_section(self._queue):
                if self._is_still_owned():
                    if self._queue._bus is not None:
                        self._queue._cancel_alarm(self._delivery.slot, self._delivery.word)
                    self._return_message()

    def __repr__(self):
        if self._queue is None:
            return "<msgq Job of no queue>"
        state = "ended" if self._is_ended else "open"
        return f"<msgq Job of {self._queue.endpoint!r}, {len(self.data)} bytes, {state}>"

    @property
    def priority(self):
        return mq_slot_state_get_priority(self._delivery.key)

    @property
    def deliveries(self):
        return self._delivery.deliveries

    @property
    def sent_time(self):
        return self._delivery.sent_time

    @property
    def origin_time(self):
        return self._delivery.origin_time

    cdef bint _is_still_owned(self) noexcept:
        """True if the word may still be ours: the job has not ended, is not a parent's, and its handle is open."""
        return (not self._is_ended and self._fork_generation == fork_generation and self._queue._joined
                and self._queue._uid == self._uid)

    cdef int _check_is_open(self) except -1:
        if self._queue is None:
            raise TypeError("jobs cannot be created directly; call the queue's take()")
        if self._is_ended:
            raise options.job_ended_error(self._queue._endpoint)
        if self._fork_generation != fork_generation:
            text = "job belongs to the parent process, which acknowledges it; take another one"
            raise ForkedSocketError(text, self._queue._endpoint)
        if not self._is_still_owned():
            raise options.job_released_error(self._queue._endpoint)
        return 0

    cdef int _begin_job_end(self) except -1:
        """Check that the job can end, and open the event channel."""
        self._check_is_open()
        if self._queue._h.event_buffer != NULL:
            self._queue._open_event_channel(False)
            self._check_is_open()  # opening the channel may have run any code
        self._is_ended = True
        if self._queue._bus is not None:
            self._queue._cancel_alarm(self._delivery.slot, self._delivery.word)
        return 0

    def ack(self):
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._queue)
        try:
            self._acknowledge()
        finally:
            mq_unlock_object(&lock)

    cdef int _acknowledge(self) except -1:
        self._begin_job_end()
        if not mq_queue_free_taken_slot(&self._queue._h, &self._delivery):
            self._queue._file.check_truncation()
            raise options.lease_expired_error(self._queue._endpoint)
        if self._queue._h.event_buffer != NULL:
            self._queue._publish_delivery_event(MQ_QUEUE_EVENT_ACKNOWLEDGED, &self._delivery)
        return 0

    def nack(self, delay=None):
        cdef mq_object_lock lock
        cdef int64_t delay_ns = 0 if delay is None or self._queue is None else options.delay_ns(
            delay, self._queue._endpoint)
        mq_lock_object(&lock, <PyObject *> self._queue)
        try:
            self._end_with_return(delay_ns)
        finally:
            mq_unlock_object(&lock)

    cdef int _end_with_return(self, int64_t delay_ns) except -1:
        self._begin_job_end()
        return self._delay_message(delay_ns) if delay_ns else self._return_message()

    # If the lease has ended, these two change nothing.

    cdef int _delay_message(self, int64_t delay_ns) except -1:
        cdef QueueHandle queue = self._queue
        cdef int64_t due_ns = queue._now_ns() + delay_ns
        if mq_queue_delay_taken_message(&queue._h, &self._delivery,
                                        mq_job_lease_end_tick(due_ns + queue._h.clock_offset)):
            if queue._bus is not None:
                queue._set_alarm(self._delivery.slot, due_ns)
        return self._report_return()

    cdef int _return_message(self) except -1:
        mq_queue_requeue_message(&self._queue._h, self._delivery.slot, self._delivery.word)
        return self._report_return()

    cdef int _report_return(self) except -1:
        if self._queue._h.event_buffer != NULL:
            self._queue._publish_buffered_events()
        return self._queue._run_notifications()

    def __enter__(self):
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._queue)
        try:
            self._check_is_open()
        finally:
            mq_unlock_object(&lock)
        return self

    def __exit__(self, kind, *_):
        cdef mq_object_lock lock
        if self._is_ended or self._fork_generation != fork_generation:
            return  # a child that leaves its parent's block leaves the job to the parent
        if kind is None:
            self.ack()
            return
        mq_lock_object(&lock, <PyObject *> self._queue)
        try:
            if self._is_still_owned():  # if the lease has ended, the message has already returned
                self._end_with_return(0)
        finally:
            mq_unlock_object(&lock)


cdef object new_job(QueueHandle queue, const mq_queue_taken_message *delivery):
    """Return a job for a taken message. If memory is missing, return the message to the queue."""
    cdef Job job = Job.__new__(Job)
    job._queue, job._delivery = queue, delivery[0]
    job._uid, job._fork_generation = queue._uid, queue._fork_generation  # a finalizer that just ran may have forked
    job.data = job._queue._copy_payload_out(delivery)
    job._is_ended = False
    return job


@no_gc_clear  # __dealloc__ needs the job
cdef class _JobIterator:
    """The iterator of `MessageQueue.jobs`: ends the job of each round before it takes the next one.

    A generator would not do: without the GIL, Python has no lock for a generator that two threads share.
    """
    cdef QueueHandle _queue
    cdef object _timeout, _lease
    cdef Job _job  # job of the loop's body; None: the loop has not begun, or has ended
    cdef bint _is_taking
    cdef bint _is_over

    def __iter__(self):
        return self

    def __next__(self):
        self._check_not_taking()
        if self._is_over:
            raise StopIteration
        self._is_taking = self._is_over = True  # an error ends the loop
        job, self._job = self._job, None
        try:
            if job is not None:
                job.__exit__(None)
            self._job = self._queue.take(self._timeout, lease=self._lease)
            self._is_over = self._job is None
        finally:
            self._is_taking = False
        if self._is_over:
            raise StopIteration
        return self._job

    cdef int _check_not_taking(self) except -1:
        if self._is_taking:
            raise ConcurrentUseError("iterator of jobs is in use by another thread; call jobs() in each thread",
                                     self._queue._endpoint)
        return 0

    def close(self):
        """Return the last job to the queue, unless the job has ended, and end the loop."""
        self._check_not_taking()
        job, self._job, self._is_over = self._job, None, True
        if job is not None:
            job.__exit__(GeneratorExit)

    def __dealloc__(self):  # the body of the loop has raised, or has left the loop
        if self._job is not None:
            self._job.__exit__(GeneratorExit)


cdef object iterate_jobs(QueueHandle queue, timeout, lease):
    """Return the iterator of `MessageQueue.jobs`, after a check of the arguments."""
    cdef _JobIterator jobs = _JobIterator.__new__(_JobIterator)
    parse_timeout_ns(timeout, queue._endpoint)
    options.lease_ns(lease, queue._endpoint)
    jobs._queue, jobs._timeout, jobs._lease = queue, timeout, lease
    return jobs

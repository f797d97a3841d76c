"""A taken message that waits for its acknowledgement. See core.pyi."""


@no_gc_clear  # __dealloc__ needs the queue
cdef class Job:
    """See core.pyi."""
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
        if self._queue is not None and self._is_still_owned():
            if self._queue._bus is not None:
                self._queue._cancel_alarm(self._delivery.slot, self._delivery.word)
            mq_queue_requeue_message(&self._queue._h, self._delivery.slot, self._delivery.word)
            if self._queue._h.event_buffer != NULL:
                self._queue._publish_buffered_events()
            self._queue._run_notifications()

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
        self._begin_job_end()
        if not mq_queue_free_taken_slot(&self._queue._h, &self._delivery):
            self._queue._file.check_truncation()
            raise options.lease_expired_error(self._queue._endpoint)
        if self._queue._h.event_buffer != NULL:
            self._queue._publish_delivery_event(MQ_QUEUE_EVENT_ACKNOWLEDGED, &self._delivery)

    def nack(self, delay=None):
        cdef QueueHandle queue = self._queue
        cdef int64_t due_ns
        cdef int64_t delay_ns = 0 if delay is None or self._queue is None else options.delay_ns(
            delay, self._queue._endpoint)
        self._begin_job_end()
        # If the lease has ended, these calls change nothing.
        if delay_ns:
            due_ns = queue._now_ns() + delay_ns
            if mq_queue_delay_taken_message(&queue._h, &self._delivery,
                                            mq_job_lease_convert_to_ticks(due_ns + queue._h.clock_offset) + 1):
                if queue._bus is not None:
                    queue._set_alarm(self._delivery.slot, due_ns)
        else:
            mq_queue_requeue_message(&queue._h, self._delivery.slot, self._delivery.word)
        if queue._h.event_buffer != NULL:
            queue._publish_buffered_events()
        queue._run_notifications()

    def __enter__(self):
        self._check_is_open()
        return self

    def __exit__(self, kind, *_):
        if self._is_ended or self._fork_generation != fork_generation:
            return  # a child that leaves its parent's block leaves the job to the parent
        if kind is None:
            self.ack()
        elif self._is_still_owned():  # if the lease has ended, the message has already returned
            self.nack()


cdef object new_job(QueueHandle queue, const mq_queue_taken_message *delivery):
    """Return a job for a taken message. If memory is missing, return the message to the queue."""
    cdef Job job = Job.__new__(Job)
    job._queue, job._delivery = queue, delivery[0]
    job._uid, job._fork_generation = queue._uid, queue._fork_generation  # a finalizer that just ran may have forked
    job.data = job._queue._copy_payload_out(delivery)
    job._is_ended = False
    return job

"""Queues on a bus: the order of waiting calls, exact due times, and sends that a simulation holds."""

cdef object _notify_on_bus = None  # function of notifier.py, which the first request imports
cdef dict _waiting_tickets = {}  # tickets of calls that wait on a bus, by file and role, the oldest first


cdef int run_notifications(QueueFile file) except -1:
    """Run the requested notifications of messages that have arrived in the empty queue."""
    if mq_queue_any_row_bit_is_set(&file.parts.queue.notify_requested):
        _notify_on_bus((file.segment.liveness_file.device, file.segment.liveness_file.inode))
    return 0


@cython.no_gc_clear  # same as QueueHandle
cdef class QueueAlarm:
    """See core.pxd. The ticks of the core round up, so an alarm is never later than they are."""

    def __call__(self):
        cdef QueueHandle taker = self._taker
        if taker is None:
            mq_queue_end_delay(&self._file.parts, self._slot, self._word)
        elif taker._joined:
            mq_queue_requeue_message(&taker._h, self._slot, self._word)
            if taker._h.event_buffer != NULL:
                taker._publish_buffered_events()
        run_notifications(self._file)


@cython.no_gc_clear  # same as QueueHandle
cdef class HeldSend:
    """See core.pxd, and the type stub (core.pyi)."""

    def __dealloc__(self):
        if not self._is_over:
            self._end()

    cdef int _end(self) except -1:
        self._is_over = True
        self.queue._held_sends -= 1
        if self.queue._is_closing and not self.queue._held_sends:
            self.queue._close_handle()
        return 0

    def commit(self):
        cdef QueueHandle queue = self.queue
        cdef mq_queue_event_record record
        cdef Py_buffer view
        key = mq_queue_commit_message(&queue._h, self.slot, len(self.data), self.priority, self._sent_time,
                                      self._origin_time)
        if queue._h.event_buffer != NULL:
            record = mq_queue_make_sent_event(&queue._event_publisher.buffer.c, key, self.slot, len(self.data),
                                              self._sent_time, self._origin_time)
            PyObject_GetBuffer(self.data, &view, PyBUF_SIMPLE)
            queue._event_publisher.publish_event(&record, &view)
            PyBuffer_Release(&view)
        try:
            queue._run_notifications()
        finally:
            self._end()

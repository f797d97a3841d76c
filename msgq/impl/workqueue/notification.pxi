"""A requested notification as a waitable: readable after a message arrived in an empty queue."""


cdef int _notifying_generation = -1  # fork generation of the process whose notifying thread is about to send a signal


@cython.no_gc_clear  # the mapping is needed until the end
cdef class QueueNotification(Waitable):
    """See core.pyi."""
    cdef QueueFile _file
    cdef mq_queue_notification _notification
    cdef EventBuffer _event_buffer  # the handle's buffer for messages that the watcher returns

    def __cinit__(self, QueueHandle queue not None):
        queue._check_usable()  # another thread may have closed the queue while this thread waited for the lock
        self._file, self._memory, self._endpoint = queue._file, queue._file.memory, queue._endpoint
        self._notification.h = queue._h
        self._notification.h.saw_owned_slots = False  # a notification takes no messages, and scans only for due ones
        if queue._event_publisher is not None:
            self._event_buffer = queue._event_publisher.watcher_buffer
            self._notification.h.event_buffer = &self._event_buffer.c
        self._use_state = self._fork_generation = fork_generation
        mq_queue_notification_consume(&self._notification)
        # When the registration ends, the queue clears the bit.
        mq_queue_set_row_bit(&self._notification.h.parts.queue.notify_requested, self._notification.h.row_number)

    def __dealloc__(self):
        if self._use_state == fork_generation:
            self._close_handle()

    def consume(self):
        self._check_usable()
        if not self._notification.h.parts.max_messages and mq_queue_has_sizes(self._notification.h.parts.queue):
            self._file.adopt_sizes()
            self.use_slots()
        due = mq_queue_notification_consume(&self._notification)
        self._rearm_fd()
        return due

    def set_notifying(self, bint is_notifying):
        global _notifying_generation
        _notifying_generation = fork_generation if is_notifying else -1

    def use_slots(self):
        with cython.critical_section(self._file):
            watcher_lock()
            mq_queue_use_slots(&self._notification.h, &self._file.parts, NULL)  # a notification takes no messages
            watcher_unlock()

    cdef bint _is_readable(self) noexcept:
        return mq_queue_notification_is_due(&self._notification)

    cdef mq_u32 *_futex_word(self) noexcept:
        return &self._notification.h.parts.queue.notify_seq

    cdef uint32_t _prepare_wait(self) noexcept:
        return mq_load_acquire_u32(self._futex_word())

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        # The watcher keeps this limit. Before each sleep, the watcher also asks for the time until a message is due.
        # The limit is below MQ_WATCH_READY_NS, so the watcher polls at once after each notification.
        return MQ_QUEUE_RECOVER_NS - 1

    cdef mq_poll_ops _poll_ops(self) noexcept:
        return mq_poll_ops(mq_queue_notification_has_more, &self._notification, self._futex_word(),
                           mq_queue_notification_prepare_wait, NULL, True, mq_queue_notification_max_sleep_ns)


def new_exclusive_notification(QueueHandle queue not None):
    """Return a notification if no other living process has one of this queue; otherwise return None."""
    cdef mq_file_lock lock
    queue._file.lock(&lock)
    try:
        return None if mq_queue_other_process_is_notified(&queue._h) else QueueNotification(queue)
    finally:
        queue._file.unlock(&lock)

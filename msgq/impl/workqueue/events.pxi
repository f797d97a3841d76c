"""A handle's event publisher. See core.pyi. events.h defines when events are buffered.

All code runs with the GIL, except copies of large payloads and opening the channel. During publishing, another thread,
a signal handler or a finalizer may create events. They add their events to a list, and the publishing thread publishes
them.
"""


cdef enum:
    DEFERRED_EVENTS_MAX = 1024  # events that wait for the publishing thread


cdef class EventBuffer:
    """See core.pxd."""

    def __cinit__(self, uint64_t room):
        self.c.records = <mq_queue_event_record *> PyMem_Calloc(room, sizeof(mq_queue_event_record))
        if self.c.records == NULL:
            raise MemoryError()
        self.c.capacity = room

    def __dealloc__(self):
        PyMem_Free(self.c.records)


cdef EventPublisher new_event_publisher(QueueFile file, object load_publisher):
    """Return the event publisher of a handle of this queue, or None if the queue has no events."""
    cdef EventPublisher publisher
    if not file.parts.events:
        return None
    publisher = EventPublisher.__new__(EventPublisher)
    publisher._load_publisher = load_publisher
    room = mq_queue_count_buffered_events(file.parts.max_messages)
    publisher._file, publisher.buffer, publisher.watcher_buffer = file, EventBuffer(room), EventBuffer(room)
    publisher._with_payload = file.parts.events == MQ_QUEUE_EVENTS_PAYLOAD
    return publisher


@no_gc_clear  # jobs that are collected together with the publisher use it
cdef class EventPublisher:
    """See core.pxd."""

    cdef int restart_for_handle(self, const mq_queue_handle *h) except -1:
        """Attach a handle that has a row, also in a forked child, where the previous state is the parent's."""
        cdef EventBuffer each
        for each in (self.buffer, self.watcher_buffer):
            each.c.own_row, each.c.number, each.c.pid = h.own_row, h.row_number, this_process().pid
            each.c.clock_offset, each.c.virtual_ns = h.clock_offset, h.virtual_ns
            each.c.first = each.c.end = 0
        self._publisher, self._deferred_events = None, deque()
        self._is_publishing, self._next_open_attempt_ns = False, 0
        return 0

    # ---- open ----

    cdef int64_t _now_ns(self) noexcept:
        return mq_read_time_ns(self.buffer.c.virtual_ns)

    cdef bint can_publish_now(self, bint sends) noexcept:
        """True if the channel is open, or the next attempt is not due."""
        if self._is_publishing:
            return True
        if self._publisher is not None and (self._has_payload_slots or not (sends and self._with_payload)):
            return True
        return self._now_ns() < self._next_open_attempt_ns

    cdef int open_channel(self, bint sends) except -1:
        """Open the channel; `sends`: for events of sends. If this fails, events are lost."""
        cdef int64_t started = self._now_ns()
        self._is_publishing = True
        try:
            self._open_channel(sends)
        except (MsgqError, MemoryError):
            self._next_open_attempt_ns = mq_queue_next_event_attempt_ns(started, self._now_ns())
        finally:
            self._is_publishing = False
        return self._send_deferred_events()

    cdef int _open_channel(self, bint sends) except -1:
        from msgq.impl.workqueue import event_channel  # imported late: few queues have events
        cdef bint has_payload_slots = sends and self._with_payload
        cdef uint64_t slot_bytes = sizeof(mq_queue_event)
        if has_payload_slots:
            slot_bytes += self._file.parts.max_message_size
        name, slots = events_channel(self._file.name), mq_queue_count_event_slots(slot_bytes)
        if not self._file.is_linked():  # the channel with this name belongs to another queue, or to no queue
            raise StateError("queue was removed", self._file.name)
        with settings.overrides(trust=self._file.trust):
            channel_file = event_channel.open_channel_file(name, self._file.prefix, None, self._file.mode,
                                                           self._file.trust, True, process_name())
            try:
                channel_file.apply_config(channel_file.config[0] or <int> MQ_QUEUE_EVENTS_CAPACITY, publishes=True)
                channel_file.set_schema(event_channel.QUEUE_EVENT_SCHEMA, False)
                publisher = self._load_publisher()(channel_file, process_name(), slots, slot_bytes,
                                                   <uint64_t> MQ_QUEUE_EVENTS_MAX_BYTES)
            finally:
                channel_file.close()  # the publisher itself marks the channel as open
        if not self._file.is_linked():
            publisher.close()
            raise StateError("queue was removed", self._file.name)
        previous, self._publisher = self._publisher, publisher
        self._slot_bytes, self._has_payload_slots = slot_bytes, has_payload_slots
        if previous is not None:
            previous.close()
        return 0

    cdef int close(self) except -1:
        """Close the publisher. An exception of a signal handler is raised after the publisher is closed."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            try:
                publisher.close()
            except MsgqError:
                pass
        return 0

    # ---- publish ----

    cdef bint has_buffered_events(self) noexcept:
        """True if events are buffered.

        Events that the watcher adds during this call may be missed until the next call.
        """
        return self.buffer.c.end or self.watcher_buffer.c.end

    cdef void publish_buffered_events(self) noexcept:
        """Publish the events in both buffers: the handle's and the watcher's."""
        cdef mq_queue_event_record record
        if self.watcher_buffer.c.end:
            watcher_lock()
            mq_queue_event_buffer_move_all(&self.watcher_buffer.c, &self.buffer.c)
            watcher_unlock()
        while self.buffer.c.first < self.buffer.c.end:  # publishing may run finalizers, which buffer further events
            record = self.buffer.c.records[self.buffer.c.first]
            self.buffer.c.first += 1
            if self.buffer.c.first == self.buffer.c.end:
                self.buffer.c.first = self.buffer.c.end = 0
            self.publish_event(&record, NULL)

    cdef void publish_event(self, const mq_queue_event_record *record, const Py_buffer *payload) noexcept:
        """Publish an event with its optional payload."""
        cdef bytes message
        cdef char *room
        cdef uint64_t size = payload.len if payload != NULL and self._with_payload else 0
        try:
            message = PyBytes_FromStringAndSize(NULL, sizeof(mq_queue_event) + size)
            room = PyBytes_AS_STRING(message)
            memcpy(room, &record.event, sizeof(mq_queue_event))
            if size >= LARGE_BYTES:
                with nogil:
                    mq_copy_to_shared(room + sizeof(mq_queue_event), payload.buf, size)
            elif size:  # C allows no null pointer, even for a copy of 0 bytes
                mq_copy_to_shared(room + sizeof(mq_queue_event), payload.buf, size)
            self._send_or_defer_event(message, record.origin_time)
        except (MsgqError, MemoryError):
            mq_queue_count_lost_events(&self.buffer.c, 1)

    cdef int _send_or_defer_event(self, bytes message, uint64_t origin_time) except -1:
        if not self._is_publishing:
            self._send_event(message, origin_time)
            return self._send_deferred_events()
        if len(self._deferred_events) >= DEFERRED_EVENTS_MAX:
            mq_queue_count_lost_events(&self.buffer.c, 1)
        else:
            self._deferred_events.append((message, origin_time))
        return 0

    cdef int _send_deferred_events(self) except -1:
        while self._deferred_events and not self._is_publishing:
            message, origin_time = self._deferred_events.popleft()
            try:
                self._send_event(message, origin_time)
            except (MsgqError, MemoryError):
                mq_queue_count_lost_events(&self.buffer.c, 1)
        return 0

    cdef int _send_event(self, bytes message, uint64_t origin_time) except -1:
        """Send an event. It has the origin time of its message, or none, regardless of this thread's origin."""
        cdef int64_t previous = current_origin()
        if self._publisher is None or <uint64_t> len(message) > self._slot_bytes:
            mq_queue_count_lost_events(&self.buffer.c, 1)
            return 0
        self._is_publishing = True
        if not origin_time and previous:
            change_origin(0)
        try:
            self._publisher.send(message, origin_time=origin_time)
        finally:
            self._is_publishing = False
            if not origin_time and previous:
                change_origin(previous)
        return 0

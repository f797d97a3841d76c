"""The public MessageQueue over shared memory. Joins, leaves and waits are in handle.pxi. See core.pyi."""


def _reopen_pickled_queue(kind, name, prefix, trust, read, write, block):
    """Return a handle of this class for a pickled one."""
    queue = kind(name, 0, read=read, write=write, prefix=prefix, trust=trust)
    queue.block = block
    return queue


cdef uint64_t parse_priority(priority, str name) except? 0:
    """Return a valid priority, or raise."""
    return 0 if type(priority) is int and not priority else options.check_priority(priority, name)


cdef uint64_t parse_origin_time(origin_time, str name) except? 0:
    """Return a valid origin time, or raise."""
    cdef uint64_t origin = 0
    if type(origin_time) is not int or origin_time:
        origin = check_range("origin_time", origin_time, 0, UINT64_MAX, name)  # C programs send any number
        refuse_foreign_origin(origin, name)
    return origin


@cython.no_gc_clear  # same as the base class
cdef class MessageQueue(QueueHandle):
    """See core.pyi."""

    def __repr__(self):
        if self._use_state == CLOSED:
            return f"<msgq MessageQueue {self._endpoint!r}, closed>"
        return f"<msgq MessageQueue {self._endpoint!r}, {self.current_messages} of {self.max_messages} messages>"

    def __reduce__(self):
        names = type(self), self._endpoint, self._prefix, self._file.trust
        return _reopen_pickled_queue, (*names, self._can_read, self._can_write, self.block)

    @staticmethod
    def _load_event_publisher():
        from msgq.impl.workqueue import event_channel  # imported late: few queues have events
        return event_channel.EventChannelPublisher

    def unlink(self):
        with settings.overrides(trust=self._file.trust):
            unlink_queue(self._endpoint, self._file.prefix)

    @staticmethod
    def unlink_name(name, prefix=None):
        unlink_queue(naming.validate_queue_name(name), settings.resolve_prefix(prefix))

    # ---- information ----

    @property
    def name(self):
        return self._endpoint

    @property
    def prefix(self):
        return self._prefix

    @property
    def path(self):
        return self._file.path

    @property
    def mode(self):
        return self._file.mode

    @property
    def max_messages(self):
        return self._sizes()[0]

    @property
    def max_message_size(self):
        return self._sizes()[1]

    cdef tuple _sizes(self):
        """Return the sizes; without a choice, those that a send would choose."""
        if self._use_state == fork_generation:
            self._adopt_sizes()
        if not self._h.parts.max_messages:
            return self._file.wanted.new_sizes()
        return self._h.parts.max_messages, self._h.parts.max_message_size

    @property
    def events(self):
        return options.EVENTS_CHOICES[self._h.parts.events]

    @property
    def schema(self):
        return self._file.schema

    @property
    def identity(self):
        """Unique identity of the queue: device and inode of its file."""
        return self._file.segment.liveness_file.device, self._file.segment.liveness_file.inode

    @property
    def current_messages(self):
        cdef uint64_t slot, count = 0
        self._check_usable()
        self._adopt_sizes()
        for slot in range(self._h.parts.max_messages):
            count += mq_slot_state_is_ready(mq_load_relaxed_u64(&self._h.parts.slot_states[slot]))
        return count

    @property
    def in_flight(self):
        return self._count_slots(MQ_SLOT_TAKEN)

    @property
    def delayed_messages(self):
        return self._count_slots(MQ_SLOT_DELAYED)

    cdef object _count_slots(self, mq_slot_state state):
        """Return the number of slots in a state."""
        cdef uint64_t slot, count = 0
        self._check_usable()
        self._adopt_sizes()
        for slot in range(self._h.parts.max_messages):
            count += mq_slot_state_decode(mq_load_relaxed_u64(&self._h.parts.slot_states[slot])) == state
        return count

    def stats(self):
        self._check_usable()
        return _measure_queue_stats(self._file)

    # ---- send ----

    def send(self, message, priority=0, *, timeout=None, deadline=None, origin_time=0, delay=None):
        cdef Py_buffer view
        cdef int64_t give_up_ns
        cdef bint was_requested
        cdef int64_t delay_ns = 0 if delay is None else options.delay_ns(delay, self._endpoint)
        cdef uint64_t rank = parse_priority(priority, self._endpoint)
        cdef uint64_t origin = parse_origin_time(origin_time, self._endpoint)
        get_message_buffer(message, &view, self._endpoint)
        try:
            self._check_can_write()
            give_up_ns = self._compute_give_up_ns(timeout, deadline)
            if self._h.event_buffer != NULL:
                self._open_event_channel(True)
            was_requested = mq_queue_any_row_bit_is_set(&self._h.parts.queue.notify_requested)
            if not self._send_without_wake(&view, rank, origin, delay_ns, give_up_ns):
                raise options.full_error(self._h.parts.max_messages, give_up_ns != NO_WAIT, self._endpoint)
            if not delay_ns:
                mq_queue_wake_receivers(self._h.parts.queue, 1)
        finally:
            PyBuffer_Release(&view)
        self._deliver_signals(was_requested)

    cdef int _deliver_signals(self, bint was_requested) except -1:
        """Send this process the signals for the sent messages. As with queues of the kernel, no send returns before.

        `was_requested`: there was a request before the send. The notifying thread clears the bit of a request for one
        signal before it sends the signal, which then takes a moment to interrupt this thread.
        """
        if (was_requested or mq_queue_any_row_bit_is_set(&self._h.parts.queue.notify_requested)
                or _notifying_generation == fork_generation):
            if self._bus is not None:
                return run_notifications(self._file)
            from msgq.impl.workqueue import notifier  # imported late: few programs need notifications
            notifier.deliver_signals(self.identity)
        return 0

    cdef bint _send_without_wake(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t delay_ns,
                                 int64_t give_up_ns) except -1:
        """Send, without a wake if there is no delay. Return False if no slot was free before the timeout."""
        cdef int64_t slot
        cdef uint64_t key, sent_time
        if <uint64_t> view.len > self._h.parts.max_message_size:
            self._choose_sizes()
        if <uint64_t> view.len > self._h.parts.max_message_size:
            raise options.too_large_error(view.len, self._h.parts.max_message_size, self._endpoint)
        slot = self._claim_free_slot(give_up_ns)
        if slot == MQ_QUEUE_NO_SLOT:
            if self._h.event_buffer != NULL:
                self._publish_refused_event(view, rank, origin or current_origin())
            return False
        self._copy_payload_in(slot, view.buf, view.len)
        if self._bus is not None:
            return self._send_on_bus(view, rank, origin or current_origin(), delay_ns, slot)
        sent_time, origin = mq_monotonic_ns() + self._h.clock_offset, origin or current_origin()
        if delay_ns:
            key = mq_queue_commit_delayed_message(&self._h, slot, view.len, rank, sent_time, origin,
                                                  mq_job_lease_end_tick(sent_time + delay_ns))
        else:
            key = mq_queue_commit_message(&self._h, slot, view.len, rank, sent_time, origin)
        self._file.check_truncation()  # check after the copy: touching a truncated page detects the truncation
        if self._h.event_buffer != NULL:
            self._publish_sent_event(view, key, slot, sent_time, origin)
        return True

    cdef bint _send_on_bus(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t delay_ns,
                           uint64_t slot) except -1:
        """As the end of `_send_without_wake`, in virtual time. A simulation commits the message itself."""
        cdef uint64_t key
        cdef int64_t now = self._bus.clock.now_ns
        if self._is_observed and not delay_ns:
            self._hold_send(view, rank, origin, slot)
            return True
        if delay_ns:
            key = mq_queue_commit_delayed_message(&self._h, slot, view.len, rank, now, origin,
                                                  mq_job_lease_end_tick(now + delay_ns))
            self._set_alarm(slot, now + delay_ns)
            if self._is_observed:
                self._on_delayed(slot)
        else:
            key = mq_queue_commit_message(&self._h, slot, view.len, rank, now, origin)
        if self._h.event_buffer != NULL:
            self._publish_sent_event(view, key, slot, now, origin)
        return True

    cdef int _hold_send(self, const Py_buffer *view, uint64_t rank, uint64_t origin, uint64_t slot) except -1:
        """In a simulation: leave the commit to the bus."""
        cdef HeldSend send = HeldSend.__new__(HeldSend)
        send.queue, send.slot, send.priority, send._origin_time = self, slot, rank, origin
        send.data, send._sent_time = PyBytes_FromStringAndSize(<char *> view.buf, view.len), self._bus.clock.now_ns
        self._held_sends += 1
        self._on_sent(send)
        return 0

    def _observe(self):
        self._is_observed = self._is_reported = True

    def _on_sent(self, send):
        send.commit()

    def _on_delayed(self, slot):
        pass

    def _on_taken(self, slot):
        pass

    def _recover(self):
        if self._joined:
            self._recover_from_dead_owners(self._now_ns())

    @property
    def _file_number(self):
        return self._file.segment.inode

    def _default_timeout_ns(self):
        return None if self.block else 0

    def _receive_now(self):
        return self.receive(0.0)

    cdef void _publish_sent_event(self, const Py_buffer *view, uint64_t key, uint64_t slot, int64_t sent_time,
                                  uint64_t origin) noexcept:
        """Publish that a message was sent. Another handle may already have taken it."""
        cdef mq_queue_event_record record = mq_queue_make_sent_event(&self._event_publisher.buffer.c, key, slot,
                                                                     view.len, sent_time, origin)
        if view.len < LARGE_BYTES:
            self._event_publisher.publish_event(&record, view)
            return
        self._add_user_thread()  # publish_event may copy the payload without the GIL
        self._event_publisher.publish_event(&record, view)
        self._remove_user_thread()

    cdef void _publish_refused_event(self, const Py_buffer *view, uint64_t rank, uint64_t origin) noexcept:
        """Publish that a message was refused because the queue is full."""
        cdef mq_queue_event_record record = mq_queue_make_refused_event(&self._event_publisher.buffer.c, rank,
                                                                        view.len, origin)
        self._event_publisher.publish_event(&record, NULL)

    def send_many(self, messages, priority=0, *, timeout=None, deadline=None, delay=None):
        cdef uint64_t rank = parse_priority(priority, self._endpoint)
        cdef int64_t delay_ns = options.delay_ns(delay, self._endpoint)
        cdef int count = 0
        cdef Py_buffer view
        cdef bint is_sequence = isinstance(messages, (list, tuple))  # an iterator may delay the next message
        cdef bint was_requested = False
        self._check_can_write()
        cdef int64_t give_up_ns = self._compute_give_up_ns(timeout, deadline)
        try:
            for message in messages:
                get_message_buffer(message, &view, self._endpoint)
                try:
                    self._check_can_write()  # the iterator and the message may have run Python code
                    if self._h.event_buffer != NULL:
                        self._open_event_channel(True)
                    was_requested |= mq_queue_any_row_bit_is_set(&self._h.parts.queue.notify_requested)
                    if not self._send_without_wake(&view, rank, 0, delay_ns, give_up_ns):
                        break
                    count += 1
                    if not delay_ns:
                        self._unwoken_messages += 1
                    if not is_sequence:
                        self._wake_receivers()
                finally:
                    PyBuffer_Release(&view)
        finally:
            self._wake_receivers()
        self._deliver_signals(was_requested)
        return count

    def wait_space(self, timeout=None, *, deadline=None):
        self._check_can_write()
        self._choose_sizes()
        cdef int64_t give_up_ns = self._compute_give_up_ns(timeout, deadline)
        cdef bint has_room = mq_queue_has_free_slot(&self._h.parts)
        cdef QueueWait wait = None if has_room or give_up_ns == NO_WAIT else self._begin_wait(MQ_QUEUE_SENDER, False)
        while not has_room:
            self._file.check_truncation()
            self._h.saw_owned_slots = True
            in_time = wait is not None and self._sleep_until_wake(wait, give_up_ns)
            self._check_usable()
            if not in_time:
                self._recover_from_dead_owners(self._now_ns())
            has_room = mq_queue_has_free_slot(&self._h.parts)
            if not in_time:
                break
        if has_room:
            mq_queue_forward_sender_wake(&self._h)  # this call took no slot, so the wake may have been for a sender
        return has_room

    # ---- receive ----

    def receive(self, timeout=None, *, deadline=None):
        cdef mq_queue_taken_message delivery
        cdef bytes data
        message = None
        while self._take_message_or_wait(&delivery, timeout, deadline):
            data = self._copy_payload_out(&delivery)
            priority = mq_slot_state_get_priority(delivery.key)
            message = new_message(data, priority, delivery.deliveries, delivery.sent_time, delivery.origin_time)
            if mq_queue_free_taken_slot(&self._h, &delivery):  # last, because other steps may raise MemoryError
                if self._is_reported:
                    self._report_delivery(MQ_QUEUE_EVENT_RECEIVED, &delivery)
                break
            message = None
        if self._fd >= 0:
            self._rearm_fd()
        return message

    def receive_into(self, buffer, timeout=None, *, deadline=None):
        cdef mq_queue_taken_message delivery
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            while self._take_message_or_wait(&delivery, timeout, deadline):
                if delivery.length > <uint64_t> view.len:
                    self._requeue_unseen_message(delivery)
                    raise options.too_small_error(delivery.length, view.len, self._endpoint)
                mq_copy_from_shared(view.buf, mq_queue_get_slot_payload(&self._h, delivery.slot), delivery.length)
                self._file.check_truncation()
                if mq_queue_free_taken_slot(&self._h, &delivery):
                    if self._is_reported:
                        self._report_delivery(MQ_QUEUE_EVENT_RECEIVED, &delivery)
                    return delivery.length, mq_slot_state_get_priority(delivery.key)
            return None
        finally:
            PyBuffer_Release(&view)
            if self._fd >= 0 and self._use_state == fork_generation:
                self._rearm_fd()

    cdef void _requeue_unseen_message(self, mq_queue_taken_message delivery) noexcept:
        """Return a message to the queue that was not delivered to the program."""
        mq_queue_put_back_message(&self._h, &delivery)
        if self._h.event_buffer != NULL:
            self._publish_buffered_events()

    def receive_many(self, limit=None):
        cdef uint64_t max_count = check_limit(limit, self._endpoint)
        cdef list messages = []
        self._check_can_read()
        # Ignore messages that arrive during the call, because they may arrive without end.
        max_count = min(max_count, self.current_messages)
        while <uint64_t> len(messages) < max_count:
            try:
                message = self.receive(0.0)
            except (IpcError, MemoryError):  # another thread may have closed the queue: return the taken messages
                if not messages:
                    raise
                break
            if message is None:
                break
            messages.append(message)
        return messages

    def _remove_waiting_message(self, bytes ending not None):
        cdef mq_queue_taken_message delivery
        cdef uint64_t slot
        self._check_can_read()
        if self._h.event_buffer != NULL:
            self._open_event_channel(False)
        self._adopt_sizes()
        for slot in range(self._h.parts.max_messages):
            # twice, because a delayed message may become due between the comparison and the take
            if not (self._take_slot_with_ending(slot, ending, &delivery)
                    or self._take_slot_with_ending(slot, ending, &delivery)):
                continue
            if mq_queue_free_taken_slot(&self._h, &delivery):
                if self._is_reported:
                    self._report_delivery(MQ_QUEUE_EVENT_RECEIVED, &delivery)
                return True
        self._file.check_truncation()
        return False

    cdef bint _take_slot_with_ending(self, uint64_t slot, bytes ending, mq_queue_taken_message *delivery) except -1:
        """Take the waiting or delayed message in a slot if it ends with these bytes."""
        cdef uint64_t word = mq_load_acquire_u64(&self._h.parts.slot_states[slot])
        if not mq_slot_state_is_ready(word) and mq_slot_state_decode(word) != MQ_SLOT_DELAYED:
            return False
        if not self._slot_ends_with(slot, ending) or not mq_queue_take_slot(&self._h, slot, word, delivery):
            return False
        if self._slot_ends_with(slot, ending):
            if self._bus is not None:
                self._cancel_alarm(slot, word)
            return True
        self._requeue_unseen_message(delivery[0])  # another message had replaced the message
        return False

    cdef bint _slot_ends_with(self, uint64_t slot, bytes ending) except -1:
        """Return True if the message in a slot ends with these bytes. Another process may write the slot."""
        cdef uint64_t size = len(ending)
        cdef uint64_t length = mq_load_relaxed_u64(&self._h.parts.slot_headers[slot].length)
        if not size <= length <= self._h.parts.max_message_size:
            return False
        copy = PyBytes_FromStringAndSize(NULL, size)
        payload = <const uint8_t *> mq_queue_get_slot_payload(&self._h, slot)
        mq_copy_from_shared(PyBytes_AS_STRING(copy), payload + (length - size), size)
        return copy == ending

    def take(self, timeout=None, *, deadline=None, lease=None):
        cdef mq_queue_taken_message delivery
        cdef int64_t lease_end_ns, lease_ns = options.lease_ns(lease, self._endpoint)
        job = None
        if self._take_message_or_wait(&delivery, timeout, deadline):
            if self._is_reported:
                self._report_delivery(MQ_QUEUE_EVENT_TAKEN, &delivery)
            job = new_job(self, &delivery)
            self._check_usable()  # a finalizer may just have closed the handle; the message has then returned
            if lease_ns:
                lease_end_ns = mq_queue_start_job_lease(&self._h, &delivery, self._now_ns() + lease_ns)
                self._next_lease_end_ns = min(self._next_lease_end_ns, lease_end_ns)
                if self._bus is not None:
                    self._set_alarm(delivery.slot, self._bus.clock.now_ns + lease_ns)
        if self._fd >= 0:
            self._rearm_fd()
        return job

    def jobs(self, timeout=None, *, lease=None):
        return iterate_jobs(self, timeout, lease)

    def __iter__(self):
        return self

    def __next__(self):
        message = self.receive()
        if message is None:  # the queue does not block
            raise StopIteration
        return message

    def arecv(self):
        self._check_can_read()
        return load_event_loop().receive_in_turn(self)

    def areceive(self):
        return self.arecv()

    # ---- peek and notify ----

    def peek(self, limit=None):
        cdef uint64_t slot, max_count = check_limit(limit, self._endpoint)
        self._check_can_read()
        self._adopt_sizes()
        waiting = []
        for slot in range(self._h.parts.max_messages):
            word = mq_load_acquire_u64(&self._h.parts.slot_states[slot])
            if mq_slot_state_is_ready(word):
                waiting.append((word, slot))
        waiting.sort(key=lambda pair: (-pair[0], pair[1]))
        seen = []
        for word, slot in waiting:
            if <uint64_t> len(seen) >= max_count:
                break
            message = self._copy_waiting_message(slot, word)
            if message is not None:
                seen.append(message)
        return seen

    cdef object _copy_waiting_message(self, uint64_t slot, uint64_t word):
        """Copy a waiting message. Return None if another handle took it, or if it is invalid."""
        cdef mq_queue_pending_message pending
        if not mq_peek_read_slot(&self._h.parts, slot, &pending) or pending.word != word:
            return None  # the message is invalid: its receiver gets the error
        data = PyBytes_FromStringAndSize(NULL, pending.length)
        if not mq_peek_copy_payload(&self._h.parts, &pending, <uint8_t *> PyBytes_AS_STRING(data)):
            return None
        return new_message(data, mq_slot_state_get_priority(word), pending.deliveries, pending.sent_time,
                           pending.origin_time)

    def notify(self, target, once=False, *, exclusive=False):
        global _notify_on_bus
        from msgq.impl.workqueue import notifier  # imported late: few programs need the notification thread
        if _notify_on_bus is None:
            _notify_on_bus = notifier.notify_on_bus
        action = None if target is None else options.parse_notification(target, self._endpoint)
        self._check_usable()
        self._cancel_registration(self._registration)
        if action is None:
            self._set_notify_bit(False)
            return
        notification = new_exclusive_notification(self) if exclusive else QueueNotification(self)
        if notification is None:
            raise QueueBusyError("another process is registered for notifications of this queue",
                                 self._endpoint)
        try:
            registration = notifier.Registration(self, notification, target, action, once)
        except BaseException:
            self._set_notify_bit(self._registration is not None)
            raise
        if self._use_state == CLOSED:  # another thread closed the queue without knowing this registration
            registration.cancel()
        self._check_usable()
        self._cancel_registration(self._registration)  # cancel a registration that another thread made at the same time
        self._registration = registration
        self._set_notify_bit(True)

    cdef int _set_notify_bit(self, bint requested) except -1:
        """Set or clear the row's bit, which all registrations of this handle share. A closed handle has no row."""
        if self._use_state != fork_generation:
            return 0
        if requested:
            mq_queue_set_row_bit(&self._h.parts.queue.notify_requested, self._h.row_number)
        else:
            mq_queue_clear_row_bit(&self._h.parts.queue.notify_requested, self._h.row_number)
        return 0

    def _cancel_registration(self, registration):
        """Cancel this registration, unless another one has replaced it."""
        if registration is not None and self._registration is registration:
            self._registration = None
            self._set_notify_bit(False)  # clear the bit at once: during `cancel`, another thread may register again
            registration.cancel()

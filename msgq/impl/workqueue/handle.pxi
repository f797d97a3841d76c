"""An open queue, the base of MessageQueue: join, leave and wait, by the steps of sender.h, receiver.h, recovery.h.

Several threads may use a handle at the same time (base/shared_handle.pxi).
"""


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class QueueHandle(ThreadSharedHandle):
    """See core.pxd."""

    def __cinit__(self, name, flags=None, mode=None, max_messages=None, max_message_size=None, *, read=True,
                  write=True, schema=None, prefix=None, trust=None, spin_us=None, events=None, create=None):
        cdef QueueFile file
        cdef mq_file_lock lock
        cdef mq_schema_parts at
        cdef bytes schema_name, encodings, schema_data
        wanted = options.parse_open_request(name, flags, mode, max_messages, max_message_size, read, write, events,
                                            create)
        self._endpoint, self._can_read, self._can_write, self.block = wanted.name, read, write, wanted.block
        self._spin_us = settings.resolve_spin_us(spin_us, wanted.name, options.SPIN_US)
        if schema is not None:
            options.check_schema(schema, wanted.name)
            schema_name, encodings, schema_data = encode_full_schema(schema)
        in_prefix = self._enter_bus(prefix, wanted.name)
        self._prefix = shm_paths.strip_bus(in_prefix) if in_prefix else ""
        if self._bus is None:
            self._h.clock_offset = host_offset_ns()
        else:
            self._h.virtual_ns = &self._bus.clock.now_ns
        self._reset_for_process()
        while True:
            file = queue_file(wanted.name, in_prefix, trust, wanted)
            if trust is None:
                file.open_or_create(wanted.create, wanted.mode)
            else:
                with settings.overrides(trust=trust):
                    file.open_or_create(wanted.create, wanted.mode)
            self._attach_file(file)
            self._file.lock(&lock)
            if not self._file.is_removed(lock.fd):
                break
            self._file.unlock(&lock)  # another process removed the file before it could see that the file is open
        if schema is not None:
            at = self._file.schema_parts()
            mq_schema_write_if_missing(&at, schema_name, encodings, schema_data, len(schema_data))
        self._occupy_row(&lock)
        if self._bus is None:
            close_at_exit(self)
        else:
            self._bus.on_opened(self)

    cdef int _attach_file(self, QueueFile file) except -1:
        self._file, self._h.parts, self._h.liveness_file = file, file.parts, file.liveness_file()
        PyMem_Free(self._h.block_caches)
        self._h.block_caches = <mq_queue_block_cache *> PyMem_Calloc(file.parts.block_count,
                                                                     sizeof(mq_queue_block_cache))
        if self._h.block_caches == NULL:
            raise MemoryError()
        self._event_publisher = new_event_publisher(file, self._load_event_publisher)
        self._h.event_buffer = &self._event_publisher.buffer.c if self._event_publisher is not None else NULL
        self._is_reported = self._event_publisher is not None
        return 0

    # ---- sizes ----

    cdef int _adopt_sizes(self) except -1:
        """Map the slots if a process has chosen the queue's sizes since this handle was opened."""
        if not self._h.parts.max_messages and mq_queue_has_sizes(self._h.parts.queue):
            self._file.adopt_sizes()  # unless a notification of this handle has mapped them
            self._use_slots()
        return 0

    cdef int _choose_sizes(self) except -1:
        """Make sure that the queue has sizes, before this handle sends."""
        if not self._h.parts.max_messages:
            self._file.choose_sizes()
            self._check_usable()  # a signal handler may have run during the wait for the lock
            if not self._h.parts.max_messages:
                self._use_slots()
        return 0

    cdef int _use_slots(self) except -1:
        """Use the slots that the file has mapped. No watcher thread sees half of the change."""
        cdef mq_queue_block_cache *caches = <mq_queue_block_cache *> PyMem_Calloc(
            self._file.parts.block_count, sizeof(mq_queue_block_cache))
        if caches == NULL:
            raise MemoryError()
        watcher_lock()
        PyMem_Free(self._h.block_caches)
        mq_queue_use_slots(&self._h, &self._file.parts, caches)
        mq_queue_use_slots(&self._poll_state.h, &self._file.parts, caches)
        watcher_unlock()
        if self._registration is not None:
            self._registration.notification.use_slots()
        return self._recover_from_dead_owners(self._now_ns())

    def __del__(self):
        # Do this before __dealloc__, where the notification thread's weak reference could return the freed handle.
        registration, self._registration = self._registration, None
        if registration is not None and self._fork_generation == fork_generation:
            registration.cancel()

    def __dealloc__(self):
        if self._joined and self._fork_generation == fork_generation:
            self._close_handle()
        PyMem_Free(self._h.block_caches)

    # ---- join and leave ----

    cdef int _reset_for_process(self) except -1:
        """Begin without a row and without waits, also in a forked child, where they are the parent's."""
        self._first_wait, self._liveness_token, self._registration = None, NULL, None
        self._forget_user_threads()
        self._forget_inherited_wait()
        memset(self._sleeping_threads, 0, sizeof(self._sleeping_threads))
        memset(&self._poll_state, 0, sizeof(self._poll_state))
        return 0

    cdef int _occupy_row(self, mq_file_lock *lock) except -1:
        """Take a row under the lock. Then unlock, and recover slots of dead owners."""
        cdef mq_process_identity us
        cdef mq_error error
        try:
            read_own_identity(&us, NULL)
            self._uid = self._file.make_uid()
            failed = mq_queue_join(&self._h, lock, &us, self._uid, &self._liveness_token, &error)
        finally:
            self._file.unlock(lock)
        if failed:
            raise_error(&error, self._endpoint)
        self._poll_state.h = self._h
        if self._event_publisher is not None:
            self._event_publisher.restart_for_handle(&self._h)
            self._poll_state.h.event_buffer = &self._event_publisher.watcher_buffer.c
        self._fork_generation, self._joined = fork_generation, True
        self._use_state = fork_generation
        self._recover_from_dead_owners(self._now_ns())
        return 0

    cdef int _reopen_in_child(self) except -1:
        cdef int use_state = self._use_state
        cdef mq_file_lock lock
        self._reset_for_process()  # before the lock: this may run finalizers, which may fork
        self._file.lock(&lock)
        # during the wait, another thread or a signal handler joined or closed the handle
        if self._use_state != use_state:
            self._file.unlock(&lock)
            return self._check_usable()
        return self._occupy_row(&lock)

    cdef void _interrupt_wait(self) noexcept:
        cdef QueueWait wait = self._first_wait
        while wait is not None:
            wait._is_closing = True
            wait = wait._next
        for role in (MQ_QUEUE_RECEIVER, MQ_QUEUE_WATCHER, MQ_QUEUE_SENDER):
            mq_futex_wake_all(mq_futex_word(mq_queue_get_eventcount(&self._h, role)))

    cdef int _close_handle(self) except -1:
        if self._held_sends and self._joined:  # they keep the row
            self._return_taken_messages(False)
            self._publish_recovery_events()
            return self._run_notifications()
        return ThreadSharedHandle._close_handle(self) if self._joined else 0

    cdef int _release_rows(self) except -1:
        if not self._joined:  # another thread has closed the handle at the same time
            return 0
        if self._bus is not None:
            self._return_taken_messages(False)
        self._joined = False
        registration, self._registration = self._registration, None
        try:
            if registration is not None:
                registration.cancel()
        finally:  # a signal handler may raise during the cancellation
            mq_queue_leave(&self._h, self._uid, &self._liveness_token)
            if self._h.event_buffer != NULL:
                self._event_publisher.publish_buffered_events()
                self._event_publisher.close()
            self._run_notifications()
        return 0

    cdef void _release_memory(self) noexcept:
        self._file.release()

    # ---- wait ----

    cdef bint _is_truncated(self) noexcept:
        """Return True if the file was truncated, so that a wait ends with an error."""
        return mq_mapping_was_truncated(self._file.not_truncated)

    cdef uint64_t _find_oldest_ticket(self, mq_queue_role role) noexcept:
        """Return the smallest ticket of the threads that wait in this handle."""
        cdef QueueWait wait = self._first_wait
        cdef uint64_t oldest = MQ_NO_TICKET
        while wait is not None:
            if wait._c.role == role:
                oldest = min(oldest, wait._c.ticket)
            wait = wait._next
        return oldest

    cdef void _add_wait(self, QueueWait wait) noexcept:
        wait._next, self._first_wait = self._first_wait, wait

    cdef void _remove_wait(self, QueueWait wait) noexcept:
        cdef QueueWait before = self._first_wait
        if before is wait:
            self._first_wait = wait._next
        else:
            while before._next is not wait:
                before = before._next
            before._next = wait._next
        wait._next = None

    cdef int _recover_from_dead_owners(self, int64_t now) except -1:
        """Recover slots of dead owners and of expired leases."""
        self._next_lease_end_ns = mq_queue_recover(&self._h, now)
        self._publish_recovery_events()
        return self._run_notifications()

    cdef int _publish_recovery_events(self) except -1:
        if self._h.event_buffer != NULL and self._event_publisher.has_buffered_events():
            self._open_event_channel(False)
            self._publish_buffered_events()
        return 0

    cdef bint _recover_if_due(self, int64_t now) except -1:
        """Recover slots or search for due messages if necessary. Return True after either."""
        if mq_queue_recovery_is_due(&self._h, now):
            self._recover_from_dead_owners(now)
            return True
        if not mq_queue_delays_changed(&self._h):
            return False
        self._next_lease_end_ns = now + mq_queue_reclaim_slots(&self._h, now)
        self._h.saw_owned_slots = True  # the next recovery comes soon enough for the due time
        self._publish_recovery_events()
        return True

    cdef int64_t _compute_next_recovery_ns(self) except -2:
        """Return the longest sleep. If a recovery is due, do it first."""
        cdef int64_t lease_end_in_ns, now = self._now_ns()
        if not self._recover_if_due(now) and self._h.saw_owned_slots:
            return MQ_QUEUE_RECOVER_BUSY_NS  # the recovery is due after this time, and finds the end of the first lease
        lease_end_in_ns = max(self._next_lease_end_ns - now, <int64_t> MQ_QUEUE_RECOVER_BUSY_NS)
        return min(<int64_t> MQ_QUEUE_RECOVER_NS, lease_end_in_ns)

    cdef QueueWait _begin_wait(self, mq_queue_role role, bint takes):
        """Begin a wait. The caller ends it with `_finish_waiting`. `takes`: the call takes the message or slot."""
        cdef QueueWait wait
        cdef tuple alone
        self._check_usable()  # another thread may have closed the handle while this one recovered slots
        alone = self._unused_wait
        self._unused_wait = None
        if alone is None:
            alone = (QueueWait.__new__(QueueWait),)
        wait = <QueueWait> alone[0]
        wait._alone, wait._queue, wait._endpoint, wait._spin_us = alone, self, self._endpoint, self._spin_us
        wait._guard = <PyObject *> self
        wait._use_state = wait._fork_generation = fork_generation
        wait._signals_end_wait = self.signals_end_waits
        wait._c = mq_queue_wait_begin(&self._h, role, takes)
        return wait

    cdef bint _sleep_until_wake(self, QueueWait wait, int64_t give_up_ns) except -1:
        """Sleep until a message or a slot may be available.

        Return False at the timeout. A signal handler may run and fork.
        """
        cdef mq_queue_role role = wait._c.role
        if give_up_ns != WAIT_FOREVER and self._now_ns() >= give_up_ns:
            return False  # stop here, because other handles might take every message before this call
        if wait._fork_generation != fork_generation:  # a handler forked, and the ticket belongs to the parent
            wait._c = mq_queue_wait_begin(&self._h, role, wait._c.takes)
        wait._use_state = wait._fork_generation = fork_generation
        wait._is_closing = False
        if wait._c.overtaken >= MQ_QUEUE_OVERTAKEN_MAX:
            wait._spin_us = 0  # a spin announces no sleep, so it requests no handoff
        self._add_wait(wait)
        self._add_user_thread()
        try:
            if self._bus is not None:
                return self._wait_on_bus(wait, give_up_ns)
            return wait_until_ready(wait._alone, give_up_ns)
        except BaseException:
            if wait._fork_generation == fork_generation:  # the wake may have been for this wait
                if role == MQ_QUEUE_RECEIVER:
                    mq_queue_forward_wake_and_notify(&self._h)
                    mq_queue_clear_notify_debt(self._h.own_row, 1)
                else:
                    mq_queue_forward_sender_wake(&self._h)
            raise
        finally:
            if wait._fork_generation == fork_generation:
                self._remove_wait(wait)
                if self._sleeping_threads[<int> role]:  # other threads of the handle sleep in this role
                    mq_store_relaxed_u64(&self._h.own_row.oldest_ticket[<int> role], self._find_oldest_ticket(role))
                self._remove_user_thread()
                if self._is_closing:
                    self._close_handle()

    cdef int64_t _compute_give_up_ns(self, timeout, deadline) except -2:
        """Return the time at which a call gives up, in CLOCK_MONOTONIC ns; NO_WAIT, or WAIT_FOREVER."""
        cdef int64_t patience
        if deadline is None:
            patience = parse_timeout_ns(timeout, self._endpoint)
        else:
            patience = options.deadline_wait_ns(timeout, deadline, self._endpoint, self._now_ns() / MQ_NS_PER_S)
        self._check_usable()  # the arguments may have any type, and their conversion may run any code
        if not self.block or patience == 0:
            return NO_WAIT
        return WAIT_FOREVER if patience < 0 else self._now_ns() + patience

    # ---- events, if self._h.event_buffer is not NULL ----

    cdef int _open_event_channel(self, bint sends) except -1:
        """Open the event channel if needed. Called before any change, because a signal handler may raise."""
        if self._event_publisher.can_publish_now(sends):
            return 0
        self._add_user_thread()
        try:
            self._event_publisher.open_channel(sends)
        finally:
            self._remove_user_thread()
            if self._is_closing:
                self._close_handle()
        return self._check_usable()

    cdef int _open_event_channel_to_take(self) except -1:
        """Open the event channel if an event is likely. A call that finds no message takes no publisher row."""
        if not self._event_publisher.can_publish_now(False) and (
                mq_queue_has_ready_message(&self._h.parts) or self._event_publisher.has_buffered_events()):
            self._open_event_channel(False)
        self._publish_buffered_events()
        return 0

    cdef void _publish_buffered_events(self) noexcept:
        """Publish the events in the buffer."""
        self._event_publisher.publish_buffered_events()

    cdef void _publish_delivery_event(self, mq_queue_event_type event_type,
                                      const mq_queue_taken_message *delivery) noexcept:
        """Publish an event of a taken message."""
        mq_queue_buffer_delivery_event(&self._h, event_type, delivery)
        self._event_publisher.publish_buffered_events()

    cdef int _report_delivery(self, mq_queue_event_type event_type, const mq_queue_taken_message *delivery) except -1:
        """Report a taken message, if `_is_reported`."""
        if self._h.event_buffer != NULL:
            self._publish_delivery_event(event_type, delivery)
        if self._is_observed:
            self._on_taken(delivery.slot)
        return 0

    # ---- on a bus ----

    cdef int _run_notifications(self) except -1:
        """On a bus: notify of messages that have just arrived. In shared memory, a thread does it."""
        return 0 if self._bus is None else run_notifications(self._file)

    cdef tuple _alarm_key(self, uint64_t slot, uint64_t word):
        return self._file.segment.liveness_file.inode, slot, word

    cdef int _set_alarm(self, uint64_t slot, int64_t due_ns) except -1:
        """Return the TAKEN or DELAYED message in the slot at its time, which ticks only approximate."""
        cdef QueueAlarm alarm
        cdef uint64_t word
        word = mq_load_acquire_u64(&self._h.parts.slot_states[slot])
        alarm = QueueAlarm.__new__(QueueAlarm)
        alarm._file, alarm._slot, alarm._word = self._file, slot, word
        if mq_slot_state_decode(word) == MQ_SLOT_TAKEN:
            alarm._taker = self
        self._bus.clock.alarms[self._alarm_key(slot, word)] = due_ns, alarm
        return 0

    cdef int _cancel_alarm(self, uint64_t slot, uint64_t word) except -1:
        self._bus.clock.alarms.pop(self._alarm_key(slot, word), None)
        return 0

    cdef int _return_taken_messages(self, bint abandoned) except -1:
        """End the leases of all taken messages. Return the messages to the queue, unless the handle is abandoned."""
        cdef uint64_t slot, word
        for slot in range(self._h.parts.max_messages):
            word = mq_load_acquire_u64(&self._h.parts.slot_states[slot])
            if mq_slot_state_decode(word) != MQ_SLOT_TAKEN or not mq_queue_owns_word(&self._h, word):
                continue
            self._cancel_alarm(slot, word)
            if not abandoned:
                mq_queue_requeue_message(&self._h, slot, word)
        return 0

    cdef int _abandon_rows(self) except -1:
        self._return_taken_messages(True)
        registration, self._registration = self._registration, None
        if registration is not None:
            registration.cancel()
        self._joined = False
        mq_liveness_unlock(self._liveness_token)
        if self._h.event_buffer != NULL:
            self._event_publisher.close()
        return 0

    def _abandon_handle(self):
        if self._held_sends or self._has_user_threads():
            self.close()  # a send that the simulation holds has returned, so it belongs to nobody who could die
        else:
            ThreadSharedHandle._abandon_handle(self)

    cdef bint _wait_on_bus(self, QueueWait wait, int64_t give_up_ns) except -1:
        """As `wait_until_ready`. Calls that take go on in the order of their tickets."""
        cdef tuple place = (self._file.segment.liveness_file.inode, <int> wait._c.role)
        cdef list tickets = _waiting_tickets.setdefault(place, [])
        awaited = "room for a message" if wait._c.role == MQ_QUEUE_SENDER else "a message"
        warn_in_event_loop()
        wait._tickets = tickets
        if wait._c.takes:
            tickets.append(wait._c.ticket)
            tickets.sort()
        wait._prepare_wait()
        try:
            self._bus.wait_until(wait.is_over, None if give_up_ns == WAIT_FOREVER else give_up_ns - self._now_ns(),
                                 f"{awaited} of the queue {self._endpoint!r}")
        finally:
            wait._end_wait()
            if wait._c.takes:
                tickets.remove(wait._c.ticket)
            if not tickets:
                _waiting_tickets.pop(place, None)
        if self._use_state == CLOSED:
            raise EndpointClosedError("was closed during the wait", self._endpoint)
        return give_up_ns == WAIT_FOREVER or self._now_ns() < give_up_ns

    # Methods of a watched handle. A Poller or an event loop calls them.

    cdef bint _is_readable(self) noexcept:
        if not self._h.parts.max_messages:
            try:
                self._adopt_sizes()
            except BaseException:
                return True  # the next call raises the error
        return self._is_truncated() or mq_queue_search_message(&self._h)

    cdef mq_u32 *_futex_word(self) noexcept:
        return mq_queue_get_eventcount(&self._h, MQ_QUEUE_WATCHER)

    cdef uint32_t _prepare_wait(self) noexcept:
        watcher_lock()
        expected = mq_queue_poll_add_watcher(&self._poll_state)
        watcher_unlock()
        return expected

    cdef void _end_wait(self) noexcept:
        watcher_lock()
        mq_queue_poll_remove_watcher(&self._poll_state)
        watcher_unlock()

    cdef void _rearm_watch(self) noexcept:
        watcher_lock()
        mq_queue_poll_prepare_wait(&self._poll_state, self._futex_word())
        watcher_unlock()

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        # The watcher keeps this interval, and therefore needs the end of the first lease.
        if not slept_ns and self._h.saw_owned_slots:
            self._recover_from_dead_owners(self._now_ns())
            self._h.saw_owned_slots = False
        return self._compute_next_recovery_ns()

    cdef mq_poll_ops _poll_ops(self) noexcept:
        return mq_poll_ops(mq_queue_poll_has_more, &self._poll_state, self._futex_word(), mq_queue_poll_prepare_wait,
                           mq_queue_poll_end_wait, True, mq_queue_poll_max_sleep_ns)

    cdef bint _can_receive_now(self) except -1:
        self._check_can_read()
        return self._is_readable()

    def fileno(self):
        self._check_can_read()
        return Waitable.fileno(self)

    # ---- slots ----

    cdef int _check_can_write(self) except -1:
        self._check_usable()
        if not self._can_write:
            raise options.access_error("write", self._endpoint)
        return 0

    cdef void _wake_receivers(self) noexcept:
        """Wake receivers for the messages of one call."""
        if self._unwoken_messages and self._joined:
            mq_queue_wake_receivers(self._h.parts.queue, self._unwoken_messages)
        self._unwoken_messages = 0

    cdef int64_t _claim_free_slot(self, int64_t give_up_ns) except -2:
        """Return a slot to fill, or MQ_QUEUE_NO_SLOT at the timeout."""
        cdef int64_t now, slot = mq_queue_claim_free_slot(&self._h, MQ_NO_TICKET)
        if slot != MQ_QUEUE_NO_SLOT:
            return slot
        if not self._h.parts.max_messages:
            self._choose_sizes()
            return self._claim_free_slot(give_up_ns)
        self._wake_receivers()  # wake receivers before waiting for a free slot
        self._file.check_truncation()
        self._h.saw_owned_slots = True  # other handles own all slots
        now = self._now_ns()
        if mq_queue_recovery_is_due(&self._h, now):
            self._recover_from_dead_owners(now)
            self._check_usable()  # during the recovery, another thread may have closed the handle
            slot = mq_queue_claim_free_slot(&self._h, MQ_NO_TICKET)
        if slot == MQ_QUEUE_NO_SLOT and give_up_ns != NO_WAIT:
            slot = self._wait_for_slot(give_up_ns)
        if slot == MQ_QUEUE_NO_SLOT:
            mq_queue_add_to_counter(&self._h.own_row.counts.refused, 1)
        return slot

    cdef int64_t _wait_for_slot(self, int64_t give_up_ns) except -2:
        """Sleep until a slot is free, and claim it. Return MQ_QUEUE_NO_SLOT at the timeout."""
        cdef int64_t slot
        cdef QueueWait wait = self._begin_wait(MQ_QUEUE_SENDER, True)
        try:
            while True:
                in_time = self._sleep_until_wake(wait, give_up_ns)
                self._check_usable()  # a signal handler may have closed the handle, or forked
                self._file.check_truncation()
                slot = mq_queue_claim_free_slot(&self._h, wait._c.ticket)
                if slot != MQ_QUEUE_NO_SLOT or not in_time:
                    return slot
                self._h.saw_owned_slots = True
                mq_queue_wait_count_overtake(&wait._c)
        finally:
            wait._finish_waiting()

    cdef int _copy_payload_in(self, uint64_t slot, const void *source, uint64_t size) noexcept:
        cdef void *room = mq_queue_get_slot_payload(&self._h, slot)
        if size < LARGE_BYTES:
            mq_copy_to_shared(room, source, size)
            return 0
        self._add_user_thread()
        with nogil:
            mq_copy_to_shared(room, source, size)
        self._remove_user_thread()
        return 0

    cdef int _check_can_read(self) except -1:
        self._check_usable()
        if not self._can_read:
            raise options.access_error("read", self._endpoint)
        return 0

    cdef bint _try_take_message(self, uint64_t ticket, mq_queue_taken_message *delivery) except -1:
        """Take the best message. Return False if there is none."""
        # the coarse clock is at most 4 ms late
        cdef int64_t now = mq_read_clock_ns(CLOCK_MONOTONIC_COARSE) if self._bus is None else self._bus.clock.now_ns
        if self._h.event_buffer != NULL:
            self._open_event_channel_to_take()
            self._check_usable()  # during the publication, another thread may have closed the handle
        if not self._h.parts.max_messages:
            self._adopt_sizes()
            self._check_usable()
        if mq_queue_recovery_is_due(&self._h, now):
            self._recover_from_dead_owners(now)
            self._check_usable()
        status = mq_queue_take_message(&self._h, ticket, delivery)
        if status == MQ_QUEUE_EMPTY and self._recover_if_due(now):
            self._check_usable()
            status = mq_queue_take_message(&self._h, ticket, delivery)
        if status == MQ_QUEUE_OK:
            if self._poll_state.ticket:
                watcher_lock()
                self._poll_state.ticket = 0  # watchers of other handles have waited longer now
                watcher_unlock()
            return True
        self._file.check_truncation()
        if status == MQ_QUEUE_EMPTY:
            return False
        if not delivery.word:
            raise CorruptSegmentError("has slots that never stop changing: another program writes the "
                                      "file", self._endpoint,
                                      self._file.path)
        if mq_queue_free_taken_slot(&self._h, delivery) and self._h.event_buffer != NULL:
            self._publish_delivery_event(MQ_QUEUE_EVENT_RECEIVED, delivery)
        text = f"has a message of {delivery.length} bytes, above its limit: another program wrote there"
        raise CorruptSegmentError(text, self._endpoint, self._file.path)

    cdef bint _take_message_or_wait(self, mq_queue_taken_message *delivery, timeout, deadline) except -1:
        """Take the best message, waiting if needed. Return False at the timeout."""
        cdef int64_t give_up_ns
        self._check_can_read()
        give_up_ns = self._compute_give_up_ns(timeout, deadline)
        if self._try_take_message(MQ_NO_TICKET, delivery):
            return True
        return give_up_ns != NO_WAIT and self._wait_for_message(delivery, give_up_ns)

    cdef bint _wait_for_message(self, mq_queue_taken_message *delivery, int64_t give_up_ns) except -1:
        """Sleep until a message arrives, and take it. Return False at the timeout."""
        cdef uint64_t uid
        cdef QueueWait wait = self._begin_wait(MQ_QUEUE_RECEIVER, True)
        try:
            while True:
                self._check_usable()  # see _begin_wait
                uid = self._uid
                mq_queue_add_notify_debt(self._h.own_row, 1)  # senders rely on this waiter for their notifications
                in_time = self._sleep_until_wake(wait, give_up_ns)
                self._check_usable()  # a signal handler may have closed the handle, or forked
                has_message = self._try_take_message(wait._c.ticket, delivery)
                if has_message:
                    mq_queue_notify_if_not_empty(&self._h.parts)
                self._run_notifications()
                if uid == self._uid:
                    mq_queue_clear_notify_debt(self._h.own_row, 1)
                if has_message or not in_time:
                    return has_message
                mq_queue_invalidate_all_caches(&self._h)  # if another program wrote words, the cache is wrong
                mq_queue_wait_count_overtake(&wait._c)
        finally:
            wait._finish_waiting()

    cdef bytes _copy_payload_out(self, const mq_queue_taken_message *delivery):
        """Copy a taken message. If memory is missing, return the message to the queue."""
        cdef bytes out
        cdef char *target
        cdef const void *source = mq_queue_get_slot_payload(&self._h, delivery.slot)
        try:
            out = PyBytes_FromStringAndSize(NULL, delivery.length)
        except MemoryError:
            mq_queue_requeue_message(&self._h, delivery.slot, delivery.word)
            raise
        target = PyBytes_AS_STRING(out)
        if delivery.length < LARGE_BYTES:
            mq_copy_from_shared(target, source, delivery.length)
        else:
            self._add_user_thread()
            with nogil:
                mq_copy_from_shared(target, source, delivery.length)
            self._remove_user_thread()
        self._file.check_truncation()  # check after the copy: touching a truncated page detects the truncation
        return out

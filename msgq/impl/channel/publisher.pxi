"""A channel's publisher: the Python interface to publisher.h and room.h. Its row and pool are in publisher_pool.pxi."""


cdef enum:
    BATCH_MESSAGES = 256  # maximum messages of an array that are published before sleepers are woken
    SLOT_POLL_NS = 100000000  # poll interval of a wait for a slot, because the death of a viewer wakes no process


cdef bint get_batch_buffer(messages, Py_buffer *view, str endpoint) except -1:
    """Get the bytes of an array of several messages. Return False for other objects, and for arrays with gaps."""
    if not PyObject_CheckBuffer(messages) or getattr(getattr(messages, "dtype", None), "hasobject", False):
        return False
    try:
        get_message_buffer(messages, view, endpoint, False, PyBUF_ND | PyBUF_C_CONTIGUOUS)
    except (BufferError, ValueError):
        return False
    if view.ndim > 1 or view.ndim == 1 and view.itemsize > 1:
        return True
    PyBuffer_Release(view)
    return False


@no_gc_clear  # a queue's handle that is collected with the publisher still publishes events
cdef class Publisher(ForkAwareHandle):
    """See core.pyi."""

    def __cinit__(self, ChannelFile file not None, str name not None, slots, slot_bytes, uint64_t max_bytes):
        self._endpoint, self.name, self._file, self._bus = file.name, name, file, file.bus
        self._slots, self._max_bytes = slots, max_bytes
        self._memory = file.require_memory()
        self._pool = register_publisher(file, name, slots, slot_bytes, max_bytes, True)
        self._pool.channel_memory = self._memory
        self._fork_generation = self._use_state = fork_generation
        if self._bus is None:
            close_at_exit(self)
        else:
            self._bus.on_opened(self)

    def __reduce__(self):
        raise pickle_error(self)

    def __repr__(self):
        state = "closed" if self._use_state == CLOSED else f"{self.sent} messages published"
        return f"<msgq channel Publisher {self._endpoint!r}, {state}>"

    # ---- counters ----

    @property
    def sent(self):
        return self._sent + self._pool.c.sent

    @property
    def bytes(self):
        return self._sent_bytes + self._pool.c.bytes

    @property
    def refused(self):
        return self._refused + self._pool.c.refused

    @property
    def evicted(self):
        return self._evicted + self._pool.c.evicted

    @property
    def slots(self):
        return self._pool.c.slots.slots

    @property
    def slot_bytes(self):
        return self._pool.c.slots.slot_bytes

    def stats(self):
        cdef PublisherPool pool = self._pool
        cdef mq_channel_published_slot_set in_order
        from msgq.common.stats.channel import ChannelPublisher  # imported late: few programs read statistics
        mq_channel_snapshot_slots(&pool.c.order, pool.c.number, &in_order)
        self._file.check_truncation()
        return ChannelPublisher(describe_this_process(), self.name, self.slots, self.slot_bytes, self.sent, self.bytes,
                                self.refused, self.evicted, in_order.messages, pool.segment.path,
                                pool.segment.size, self.closed)

    # ---- close and fork ----

    def close(self):
        cdef bint is_owner = self._fork_generation == fork_generation
        if self._use_state == CLOSED:
            return
        if is_owner and self._waiting_thread and self._bus is None:
            self._interrupt_wait()
            is_owner = self._fork_generation == fork_generation
            if is_owner:
                return
        if is_owner and self._use_state != fork_generation and not self._waiting_thread:
            raise usage_error(self._use_state, self._endpoint)
        # Set this before leaving the row: an interrupt may end this call, and the row may get another owner.
        self._use_state = CLOSED
        if is_owner:
            self._pool.superseded = True  # the last open loan retires the pool
            self._pool.retire(True)
        else:
            self._pool.release_memory()
        self._release_memory()
        if is_owner and self._bus is not None:
            self._bus.on_closed(self)

    def _abandon_handle(self):
        """See `Waitable._abandon_handle`."""
        if self._use_state == CLOSED or self._fork_generation != fork_generation:
            return
        self._use_state = CLOSED
        self._pool.abandon()
        self._release_memory()
        self._bus.on_closed(self)

    cdef int _interrupt_wait(self) except -1:
        """End the wait for a slot, which closes the publisher.

        Never blocks in a signal handler of the waiting thread, or in a child that a signal handler forks.
        """
        self._is_closing = True
        while (self._is_closing and self._fork_generation == fork_generation
               and self._waiting_thread != PyThread_get_thread_ident()):
            mq_futex_wake_all(mq_futex_word(&self._pool.c.slots.pool_header.slot_released))
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        return 0

    cdef int _reopen_in_child(self) except -1:
        """Take a row and create a pool. Open loans stay the parent's."""
        cdef PublisherPool inherited = self._pool
        self._waiting_thread, self._is_closing = 0, False  # the waiting thread may not exist in the child
        self._switch_pool(register_publisher(self._file, self.name, self._slots, inherited.c.slots.slot_bytes,
                                             self._max_bytes, True))
        if self._file.own_pools[inherited.c.number] == inherited.c.slots.uid:
            self._file.own_pools[inherited.c.number] = 0  # with `own=False`, still receive the parent's messages
        close_at_exit(self)
        return 0

    cdef int _check_not_inherited(self) except -1:
        """Raise in the child if a signal handler forked during a call."""
        if self._fork_generation != fork_generation:
            text = "signal handler forked the process during this call; call again in the child"
            raise ForkedSocketError(text, self._endpoint)
        return 0

    cdef int _switch_pool(self, PublisherPool pool) except -1:
        """Publish from another pool from now on, and keep the counters."""
        self._sent += self._pool.c.sent
        self._sent_bytes += self._pool.c.bytes
        self._refused += self._pool.c.refused
        self._evicted += self._pool.c.evicted
        self._pool, pool.channel_memory = pool, self._memory
        if self._is_observed:
            self._observe()
        return 0

    # ---- in a simulation ----

    def _observe(self):
        """Tell the bus about each message from now on."""
        self._is_observed = True
        mq_eventcount_prepare_wait_mp(&self._pool.c.header.eventcount)  # so that each publication notifies

    def _read_published(self):
        return [self._published]

    cdef int _tell_bus(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t position) except -1:
        cdef mq_pool_slot *at = mq_pool_slot_at(&pool.c.slots, slot)
        self._published = (position, (<const char *> mq_pool_slot_payload(at))[:size], position + 1,
                           mq_load_relaxed_u64(&at.publish_time), mq_load_relaxed_u64(&at.origin_time))
        self._bus.on_published(self)
        return 0

    # ---- send ----

    def send(self, data, /, *, timeout=0.0, uint64_t origin_time=0):
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        refuse_foreign_origin(origin_time, self._endpoint)
        return self._send_message(data, wait_ns, origin_time)

    def send_many(self, messages, /, *, uint64_t origin_time=0):
        cdef Py_ssize_t count = 0
        cdef Py_buffer view
        refuse_foreign_origin(origin_time, self._endpoint)
        if get_batch_buffer(messages, &view, self._endpoint):
            try:
                return self._send_batch(&view, origin_time)
            finally:
                PyBuffer_Release(&view)
        for message in messages:
            if self._use_state != fork_generation:
                self._reopen_or_raise()
            self._send_message(message, 0, origin_time)
            count += 1
        return count

    cdef Py_ssize_t _send_batch(self, const Py_buffer *view, uint64_t origin_time) except -1:
        """Publish the rows of an array in blocks, with one wake for each block."""
        cdef const uint8_t *data = <const uint8_t *> view.buf
        cdef uint64_t done = 0, count = view.shape[0], size = view.len // count if count else 0, block, wanted
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if size > self._pool.c.slots.slot_bytes:
            self._grow_pool(size)
        cdef uint64_t origin = origin_time or current_origin()
        block = max(<uint64_t> 1, min(<uint64_t> BATCH_MESSAGES, <uint64_t> LARGE_BYTES // max(size, <uint64_t> 1)))
        while done < count:
            wanted = min(block, count - done)
            if (size >= LARGE_BYTES or self._is_observed  # a bus gets each message before the next one is published
                    or not self._publish_batch(data + done * size, size, wanted, origin, &done)):
                self._send_bytes(data + done * size, size, 0, origin)  # _send_bytes handles special cases
                done += 1
        return count

    cdef bint _publish_batch(self, const uint8_t *rows, uint64_t size, uint64_t count, uint64_t origin_time,
                             uint64_t *done) except -1:
        """Publish up to `count` rows, and add their number to `done`. Return False if not all were published."""
        cdef uint64_t first = 0
        cdef uint64_t sent = mq_channel_publish_batch(&self._pool.c, rows, size, count, origin_time, &first)
        done[0] += sent
        if sent and mq_eventcount_has_waiters_mp(&self._pool.c.header.eventcount):
            mq_eventcount_notify_mp(&self._pool.c.header.eventcount)
        if (mq_mapping_was_truncated(self._file.not_truncated) or
                mq_mapping_was_truncated(self._pool.not_truncated)):
            self._file.check_truncation()
            self._pool.check_truncation()
        return sent == count

    cdef object _send_message(self, object data, int64_t wait_ns, uint64_t origin_time):
        cdef Py_buffer view
        if PyBytes_CheckExact(data):
            return self._send_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), wait_ns, origin_time)
        get_message_buffer(data, &view, self._endpoint)
        try:
            if self._use_state != fork_generation:  # the object that exports the buffer may have run any code
                self._reopen_or_raise()
            return self._send_bytes(view.buf, view.len, wait_ns, origin_time)
        finally:
            PyBuffer_Release(&view)

    cdef object _send_bytes(self, const void *data, uint64_t size, int64_t wait_ns, uint64_t origin_time):
        cdef int slot
        cdef uint8_t *payload
        if size > self._pool.c.slots.slot_bytes:
            self._grow_pool(size)
        slot = mq_channel_take_free_slot(&self._pool.c)
        if slot == MQ_CHANNEL_NO_SLOT:
            slot = self._reclaim_slot(wait_ns)
        payload = mq_channel_begin_slot_write(&self._pool.c, slot)
        if size < LARGE_BYTES:
            mq_copy_to_shared(payload, data, size)
        else:
            self._use_state = BUSY
            with nogil:
                mq_copy_to_shared(payload, data, size)
            self._use_state = self._fork_generation
        return self._publish_slot(self._pool, slot, size, origin_time)

    cdef object _publish_slot(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t origin_time):
        cdef uint64_t position = 0
        status = mq_channel_publish(&pool.c, slot, size, origin_time or current_origin(), &position)
        if mq_mapping_was_truncated(self._file.not_truncated) or mq_mapping_was_truncated(pool.not_truncated):
            self._file.check_truncation()  # check after the copy: touching a truncated page detects the truncation
            pool.check_truncation()
        if status == MQ_CHANNEL_NOTIFY:
            if self._is_observed:
                self._tell_bus(pool, slot, size, position)
            else:
                mq_eventcount_notify_mp(&pool.c.header.eventcount)
        elif status == MQ_CHANNEL_CORRUPT:
            mq_channel_return_slot(&pool.c, slot)
            text = ("has an invalid order of messages: another program wrote into the file; remove the channel (msgq "
                    "clean)")
            raise CorruptSegmentError(text, self._endpoint, self._file.path)
        if pool is not self._pool:  # the loan belongs to a previous pool
            self._sent += 1
            self._sent_bytes += size
        return position

    # ---- slots ----

    cdef int _reclaim_slot(self, int64_t wait_ns) except -1:
        """Return a slot when none is free: clear pins of dead viewers, or wait."""
        cdef int slot = MQ_CHANNEL_NO_SLOT
        if self._pool.c.lacks_memory:
            raise self._missing_memory_error()
        if mq_channel_clear_dead_pins(&self._pool.c):
            slot = mq_channel_take_free_slot(&self._pool.c)
        if slot == MQ_CHANNEL_NO_SLOT and wait_ns != 0:
            slot = self._wait_for_slot(wait_ns)
        if slot == MQ_CHANNEL_NO_SLOT:
            mq_channel_count_refused_message(&self._pool.c)
            raise self._pool_exhausted_error()
        return slot

    cdef object _missing_memory_error(self):
        """Return the exception for a slot without memory: the file was truncated, or /dev/shm is full."""
        cdef Segment segment = self._pool.segment
        if mq_file_shrank(segment.file, segment.inode, segment.size):
            return truncated_error(self._endpoint, segment)
        return segment_error("cannot allocate memory for the message", self._endpoint, segment.path, ENOSPC)

    cdef int _wait_for_slot(self, int64_t wait_ns) except -2:
        """Sleep until a viewer releases a slot. Return -1 at the timeout."""
        cdef int64_t now, until, deadline = -1
        cdef uint32_t expected
        cdef int slot = MQ_CHANNEL_NO_SLOT
        cdef PublisherPool pool
        if self._bus is not None:
            self._wait_on_bus(self._can_take_slot, wait_ns, "a slot")
            slot = mq_channel_take_free_slot(&self._pool.c)
            if slot == MQ_CHANNEL_NO_SLOT and mq_channel_clear_dead_pins(&self._pool.c):
                slot = mq_channel_take_free_slot(&self._pool.c)
            return slot
        if wait_ns >= 0:
            deadline = mq_monotonic_ns() + wait_ns
        pool = self._begin_wait()
        try:
            while slot == MQ_CHANNEL_NO_SLOT:
                PyErr_CheckSignals()
                if self._is_closing or self._fork_generation != fork_generation:
                    break  # closed, or a signal handler forked and this is the child
                expected = mq_eventcount_prepare_wait_mp(&pool.c.slots.pool_header.slot_released)
                slot = mq_channel_take_free_slot(&pool.c)
                if slot == MQ_CHANNEL_NO_SLOT and mq_channel_clear_dead_pins(&pool.c):
                    slot = mq_channel_take_free_slot(&pool.c)
                now = mq_monotonic_ns()
                if slot != MQ_CHANNEL_NO_SLOT or 0 <= deadline <= now:
                    break
                until = now + SLOT_POLL_NS
                if 0 <= deadline < until:
                    until = deadline
                with nogil:
                    mq_futex_wait(mq_futex_word(&pool.c.slots.pool_header.slot_released), expected, until)
        finally:
            closed = self._end_wait(pool, slot)
        self._check_after_wait(closed, "a slot")
        return slot

    def _can_take_slot(self):
        return self._use_state == CLOSED or mq_channel_can_take_slot(&self._pool.c)

    cdef PublisherPool _begin_wait(self):
        """Begin a wait that `close` can end, and return the pool."""
        if self._use_state != fork_generation:  # a signal handler may have closed the publisher
            self._reopen_or_raise()
        self._use_state, self._waiting_thread = BUSY, PyThread_get_thread_ident()
        return self._pool

    cdef bint _end_wait(self, PublisherPool pool, int slot) except -1:
        """End a wait that found this slot. Close the publisher if `close` was called, and then return True."""
        self._use_state, self._waiting_thread = self._fork_generation, 0
        if not self._is_closing or self._fork_generation != fork_generation:
            return False
        if slot != MQ_CHANNEL_NO_SLOT:
            mq_channel_return_slot(&pool.c, slot)
        try:
            self.close()
        finally:
            self._is_closing = False  # set this last, because `_interrupt_wait` then returns
        return True

    cdef int _check_after_wait(self, bint closed, str subject) except -1:
        if closed:
            raise EndpointClosedError(f"was closed during the wait for {subject}", self._endpoint)
        return self._check_not_inherited()

    cdef int _wait_on_bus(self, is_over, int64_t wait_ns, str subject) except -1:
        """Let the bus run other nodes until `is_over()` is True, or up to the time limit (ns; negative: none)."""
        self._check_usable()
        self._use_state, self._waiting_thread = BUSY, PyThread_get_thread_ident()
        try:
            self._bus.wait_until(is_over, None if wait_ns < 0 else wait_ns, f"{subject} of {self._endpoint!r}")
        finally:
            self._waiting_thread = 0
            if self._use_state == BUSY:
                self._use_state = self._fork_generation
        return self._check_after_wait(self._use_state == CLOSED, subject)

    cdef object _pool_exhausted_error(self):
        """Return the error that names the viewers of the slots."""
        cdef uint64_t holders
        cdef PublisherPool pool = self._pool
        cdef list held = [0] * MQ_CHANNEL_VIEWERS
        for i in range(mq_channel_count_used_slots(&pool.c)):
            holders = mq_pool_pin_holders(&pool.c.slots, mq_channel_get_used_slot(&pool.c, i))
            for viewer in range(MQ_CHANNEL_VIEWERS):
                held[viewer] += holders >> viewer & 1
        holder_texts = [f"{self._file.describe_viewer(viewer)} holds {count}"
                        for viewer, count in enumerate(held) if count]
        if pool.open_loans:
            holder_texts.append(f"{pool.open_loans} in open loans of this publisher")
        text = (f"all {pool.c.slots.slots} slots of this publisher are in use: {', '.join(holder_texts)}; release "
                "views sooner, give the publisher more slots, or a timeout to wait for one. Nothing was sent")
        return PoolExhaustedError(text, self._endpoint)

    cdef int _grow_pool(self, uint64_t size) except -1:
        """Replace the pool by one with larger slots."""
        cdef PublisherPool previous = self._pool, larger
        cdef mq_error error
        cdef int64_t wanted = mq_pool_grow_slot_bytes(self._slots or 0, previous.c.slots.slot_bytes, size,
                                                      self._max_bytes, &error)
        if wanted < 0:
            raise_error(&error, self._endpoint)
        self._use_state = BUSY
        try:
            larger = register_publisher(self._file, self.name, self._slots, wanted, self._max_bytes, False)
            if self._fork_generation == fork_generation:
                self._switch_pool(larger)
                mq_store_release_u64(&previous.c.row.superseded, 1)
                previous.superseded = True
                previous.retire(True)
        finally:
            self._use_state = self._fork_generation
        return self._check_not_inherited()

    # ---- room ----

    def wait_for_room(self, messages=1, *, timeout=None):
        cdef Py_ssize_t wanted = PyNumber_AsSsize_t(messages, NULL)
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if not 1 <= wanted <= <int64_t> min(self._pool.c.order.capacity, <uint64_t> self._pool.c.slots.slots):
            raise self._room_error(wanted)
        if mq_channel_has_room(&self._pool.c, wanted, 0):
            return True
        return self._wait_for_room(wanted, parse_timeout_ns(timeout, self._endpoint))

    cdef bint _wait_for_room(self, uint64_t messages, int64_t wait_ns) except -1:
        """Wait until the publisher has room. Return False at the timeout."""
        cdef mq_channel_room_wait wait
        cdef PublisherPool pool
        status = MQ_ROOM_MISSING
        if self._bus is not None:
            from functools import partial  # imported late: only a bus needs it
            if wait_ns and not mq_channel_find_room(&self._pool.c, messages, True):
                self._wait_on_bus(partial(self._has_room, messages), wait_ns, "room")
            return mq_channel_find_room(&self._pool.c, messages, True)
        wait = mq_channel_begin_room_wait(mq_monotonic_ns() + wait_ns if wait_ns >= 0 else -1)
        pool = self._begin_wait()
        try:
            while not self._is_closing and self._fork_generation == fork_generation:
                status = mq_channel_check_room_wait(&wait, &pool.c, messages)
                if status != MQ_ROOM_MISSING:
                    break
                with nogil:
                    mq_channel_pause_room_wait(&wait, NULL)
                PyErr_CheckSignals()
        finally:
            closed = self._end_wait(pool, MQ_CHANNEL_NO_SLOT)
        self._check_after_wait(closed, "room")
        self._file.check_truncation()
        pool.check_truncation()
        return status == MQ_ROOM_FOUND

    def _has_room(self, messages):
        return self._use_state == CLOSED or mq_channel_find_room(&self._pool.c, messages, True)

    cdef object _room_error(self, Py_ssize_t messages):
        capacity, slots = self._pool.c.order.capacity, self._pool.c.slots.slots
        text = (f"room for {messages} messages was requested, but the channel keeps {capacity} and this publisher has "
                f"{slots} slots; give 1 to {min(capacity, slots)}")
        return InvalidValueError(text, self._endpoint)

    def loan(self, size, /, *, timeout=0.0):
        cdef Loan loan = Loan.__new__(Loan)
        cdef uint64_t wanted
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self._endpoint)
        wanted = size  # the conversion may run Python code, as does the comparison above
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if wanted > self._pool.c.slots.slot_bytes:
            self._grow_pool(wanted)
        slot = mq_channel_take_free_slot(&self._pool.c)
        loan._slot = self._reclaim_slot(wait_ns) if slot == MQ_CHANNEL_NO_SLOT else slot
        loan._publisher, loan._pool, loan._size, loan._fork_generation = self, self._pool, wanted, fork_generation
        loan._pool.open_loans += 1
        mq_channel_begin_slot_write(&loan._pool.c, loan._slot)  # from now on the bytes of the slot may change
        return loan


def open_publisher(ChannelFile file not None, str name not None, slots, slot_bytes, uint64_t max_bytes):
    return Publisher(file, name, slots, slot_bytes, max_bytes)

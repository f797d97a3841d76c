"""A channel's subscriber: the Python interface to subscriber.h.

Its rows and mapped pools are in subscriber_rows.pxi.
"""


cdef enum:
    WAKE_TIMEOUT_NS = 1000000000  # first poll interval: a publisher may die between its message and the wake
    PASSIVE_SLEEP_MIN_NS = 50000      # a passive subscriber announces no sleep, so it polls
    PASSIVE_SLEEP_MAX_NS = 1000000
    POOL_MAPS_MAX = 256  # maximum pools that one call maps, or finds missing
    TORN_COPIES_MAX = 1000                 # maximum torn copies in one call with a timeout


@cython.no_gc_clear  # __dealloc__ needs the mappings
cdef class Subscriber(Waitable):
    """See core.pyi."""

    def __cinit__(self, ChannelFile file not None, str name not None, uint64_t history, int max_views, bint conflate,
                  bint newest, bint raises, bint own, spin_us):
        self._endpoint, self.name, self._file = file.name, name, file
        if self._choose_bus() is not None:  # else an observer of a bus, which reads its files like others
            self._bus = file.bus
        self.max_views, self._raise_on_lost = max_views, raises
        self._spin_us = settings.resolve_spin_us(spin_us, file.name)
        self.c.header, self.c.not_truncated = file.header, file.not_truncated
        self.c.conflate, self.c.newest, self.c.history = conflate, newest, history
        self.c.excluded_pools = NULL if own else file.own_pools
        self._fork_generation, self._memory = fork_generation, file.require_memory()
        self._begin_use()
        try:
            self._register_rows()
            mq_channel_subscriber_join(&self.c, True)
            self._use_state = self._fork_generation
        finally:
            if self._use_state != self._fork_generation:
                self._use_state = CLOSED
        if self._bus is None:
            close_at_exit(self)
        else:
            self._bus.on_opened(self)

    def __reduce__(self):
        raise pickle_error(self)

    def __dealloc__(self):
        if self._use_state != CLOSED and self._fork_generation == fork_generation:
            self._close_handle()

    def __repr__(self):
        state = "closed" if self._use_state == CLOSED else f"{self.c.received} messages received"
        return f"<msgq channel Subscriber {self._endpoint!r}, {state}>"

    cdef int _register_rows(self) except -1:
        """Take rows. No pool is mapped yet."""
        self._pools = [None] * MQ_CHANNEL_PUBLISHERS
        memset(self.c.pools, 0, sizeof(self.c.pools))
        self.c.row = NULL  # the row may belong to the parent process
        if self._file.writable:
            self._rows = SubscriberRows.__new__(SubscriberRows)
            self._rows.file, self._rows.memory = self._file, self._memory
            self._rows.register_subscriber(self.name)
            self.c.row = self._rows.c.row
            mq_channel_store_join_position(&self.c)
        return 0

    # ---- counters ----

    @property
    def lost(self):
        return self.c.lost

    @property
    def received(self):
        return self.c.received

    @property
    def resets(self):
        return self.c.resets

    @property
    def position(self):
        return mq_channel_load_cursor(&self.c)

    @property
    def views_held(self):
        return 0 if self._rows is None else self._rows.count_views()

    @property
    def passive(self):
        return not self._file.writable

    @property
    def last(self):
        if self._last_pool is None:
            return None
        from msgq.common.stats.channel import ChannelMessage  # imported late: few programs read `last`
        return ChannelMessage(self._last.position, self._last.publish_time, self._last.origin_time,
                              self._last_pool.describe_publisher())

    def stats(self):
        cdef mq_channel_subscriber_snapshot copy
        cdef mq_index_ring order
        from msgq.common.stats.channel import ChannelSubscriber  # imported late: few programs read statistics
        memset(&copy, 0, sizeof(copy))
        copy.cursor, copy.joined = mq_channel_load_cursor(&self.c), self.c.joined_at
        copy.received, copy.lost, copy.resets = self.c.received, self.c.lost, self.c.resets
        if self.c.order.capacity and mq_channel_load_index_ring(self.c.header, &order):
            mq_channel_snapshot_count_unread(&order, &copy)
        self._file.check_truncation()
        return ChannelSubscriber(describe_this_process(), self.name, copy.cursor, copy.lag, copy.received, copy.lost,
                                 copy.resets, self.views_held)

    # ---- find messages ----

    cdef bint _next_message(self, mq_channel_message *message) except -1:
        """Return the message at the cursor. Return False if there is none, or too many pools in a row are missing."""
        cdef int _mapped
        for _mapped in range(POOL_MAPS_MAX):
            if self._view is not None:
                self._view.advance(&self.c)
            status = mq_channel_next_message(&self.c, message)
            if self._raise_on_lost and self.c.lost != self._lost_reported:
                lost, self._lost_reported = self.c.lost - self._lost_reported, self.c.lost
                error = LostMessagesError(f"{lost} messages lost; the next call continues after them",
                                          self._endpoint)
                error.lost = lost
                raise error
            if status == MQ_CHANNEL_OK:
                return True
            if status == MQ_CHANNEL_EMPTY:
                if mq_mapping_was_truncated(self._file.not_truncated):
                    self._file.check_truncation()
                return False
            if status == MQ_CHANNEL_UNMAPPED:
                self._map_or_skip_pool(message)
                continue
            mq_channel_skip_message(&self.c, message)  # skip, so that the next call continues after the message
            self._file.check_truncation()
            text = f"no message at position {message.position}: another program wrote into the file"
            raise CorruptSegmentError(text, self._endpoint, self._file.path)
        return False  # publishers are as fast as this loop, and the next call continues

    cdef bint _following_message(self, mq_channel_message *message) except -1:
        """Return the message that follows the received ones. Return False before a loss or error of the next call."""
        cdef int _mapped
        for _mapped in range(POOL_MAPS_MAX):
            if self._view is not None:
                if self._view.is_lapped(&self.c):
                    return False
                self._view.advance(&self.c)
            status = mq_channel_following_message(&self.c, message)
            try:
                if status != MQ_CHANNEL_UNMAPPED or not self._map_pool(message):
                    return status == MQ_CHANNEL_OK
            except SegmentError:
                return False
        return False

    cdef int _map_or_skip_pool(self, const mq_channel_message *message) except -1:
        """Map the pool of the message.

        If the pool is missing and the message is still in the order, the message is lost.
        """
        try:
            if not self._map_pool(message):
                mq_channel_skip_message(&self.c, message)
        except SegmentError as error:
            # these errors are temporary, and the next call finds the message again
            if error.errno not in (EMFILE, ENFILE, ENOMEM):
                mq_channel_skip_message(&self.c, message)
            raise
        return 0

    cdef bint _map_pool(self, const mq_channel_message *message) except -1:
        """Map the pool of the message. Return False if the pool is missing."""
        cdef bint pins = self._can_take_views()
        cdef MappedPool mapped = open_pool(self._file, message.pool_uid, pins)
        if self._use_state != fork_generation:  # a signal handler may have closed the subscriber
            self._check_usable()
        if self._can_take_views() != pins:  # the first view was taken, or a handler forked: map the pool again
            return True
        if mapped is None:
            return False
        mapped.rows = self._rows
        self._pools[message.row] = mapped
        self.c.pools[message.row] = mapped.slots
        return True

    cdef bint _wait_for_message(self, mq_channel_message *message, int64_t wait_ns) except -1:
        """Return the message at the cursor, waiting up to `wait_ns`. Return False if there is none."""
        cdef int64_t deadline = WAIT_FOREVER
        if self._next_message(message):
            return True
        if wait_ns == 0:
            return False
        if wait_ns > 0:
            deadline = self._now_ns() + wait_ns
        try:
            self._nap_ns = mq_channel_compute_lapped_nap_ns(&self.c, self._now_ns())
            while wait_until_ready((self,), deadline):
                self._check_usable()  # a signal handler may have forked
                if self._next_message(message):
                    return True
                if 0 <= deadline <= self._now_ns():  # the message that caused the wake was excluded or retracted
                    break
        finally:
            self._nap_ns = 0
        return False

    cdef bint _accept_message(self, const mq_channel_message *message) except -1:
        """Validate the copy of a message. Return False if it was overwritten during the copy."""
        cdef MappedPool mapped = self._pools[message.row]
        if mq_mapping_was_truncated(mapped.not_truncated):
            mq_channel_skip_message(&self.c, message)
            mapped.check_truncation(self._endpoint)
        if not mq_channel_accept_entry(&self.c, message):
            PyErr_CheckSignals()  # handle signals even if publishers lap the subscriber repeatedly
            self._check_usable()
            return False
        self._last, self._last_pool = message[0], mapped
        return True

    cdef bint _accept_following(self, const mq_channel_message *message) except -1:
        """Do the same as `_accept_message`. Return False in a truncated pool: the next call raises the error."""
        cdef MappedPool mapped = self._pools[message.row]
        return not mq_mapping_was_truncated(mapped.not_truncated) and self._accept_message(message)

    cdef bint _should_stop_retrying(self, int *torn, int64_t wait_ns) noexcept:
        """Return True after TORN_COPIES_MAX torn copies in one call. A call without a timeout never stops."""
        torn[0] += 1
        return torn[0] >= TORN_COPIES_MAX and wait_ns != WAIT_FOREVER

    # ---- receive copies ----

    cdef bytes _copy_payload(self, const mq_channel_message *message):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, message.length)
        cdef char *target = PyBytes_AS_STRING(out)
        if message.length < LARGE_BYTES:
            mq_copy_from_shared(target, mq_pool_slot_payload(message.slot), message.length)
            return out
        self._begin_use()
        with nogil:
            mq_copy_from_shared(target, mq_pool_slot_payload(message.slot), message.length)
        self._use_state = self._fork_generation
        return out

    cdef object _receive_copy(self, int64_t wait_ns):
        cdef mq_channel_message message
        cdef bytes out = None
        cdef int torn = 0
        while self._wait_for_message(&message, wait_ns):
            out = self._copy_payload(&message)
            if self._accept_message(&message):
                break
            out = None
            if self._should_stop_retrying(&torn, wait_ns):
                break
        self._rearm_fd()
        return out

    def receive(self, timeout=None):
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        self._check_usable()
        return self._receive_copy(wait_ns)

    def receive_into(self, buffer, timeout=None):
        cdef mq_channel_message message
        cdef Py_buffer view
        cdef int torn = 0
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            self._check_usable()
            while self._wait_for_message(&message, wait_ns):
                if message.length > <uint64_t> view.len:
                    text = (f"message has {message.length} bytes, but the buffer has {view.len}; the message stays "
                            "for the next call")
                    raise MessageTooLargeError(text, self._endpoint)
                mq_copy_from_shared(view.buf, mq_pool_slot_payload(message.slot), message.length)
                if self._accept_message(&message):
                    return message.length
                if self._should_stop_retrying(&torn, wait_ns):
                    break
            return None
        finally:
            PyBuffer_Release(&view)
            if self._use_state == fork_generation:
                self._rearm_fd()

    cdef uint64_t _count_receivable(self, object limit) except? 0:
        """Return the limit of positions to pass: as requested, and at most those present now."""
        if limit is not None:
            limit = check_limit(limit, self._endpoint)
        self._check_usable()
        if self._view is not None:
            self._view.show_arrivals(&self.c)
        if not self.c.order.capacity and not mq_channel_subscriber_join(&self.c, False):
            return 0
        tail = mq_index_ring_load_tail(&self.c.order) if self._view is None else self._view.c.end
        available = tail - min(mq_channel_load_cursor(&self.c), tail)
        if available == 0 and self._view is None and self._is_readable():
            available = 1  # the message's publisher stopped before it advanced the tail
        return available if limit is None else min(available, limit)

    cdef bytes _receive_following(self):
        """Return a copy of the message that follows the received ones. See _following_message."""
        cdef mq_channel_message message
        if not self._following_message(&message):
            return None
        out = self._copy_payload(&message)
        return out if self._accept_following(&message) else None

    def receive_many(self, limit=None):
        cdef list messages = []
        cdef uint64_t max_count = self._count_receivable(limit)
        cdef uint64_t end = mq_channel_load_cursor(&self.c) + max_count
        while mq_channel_load_cursor(&self.c) < end and <uint64_t> len(messages) < self.c.order.capacity:
            try:
                message = self._receive_following() if messages and self._raise_on_lost else self._receive_copy(0)
            except SegmentError:
                if not messages:
                    raise
                break
            if message is None:
                break
            messages.append(message)
            self._check_usable()
        self._rearm_fd()
        return messages

    def receive_array(self, dtype, limit=None, *, timeout=0.0, list publishers=None):
        import numpy
        cdef mq_channel_message message
        cdef uint64_t size, batch_count, max_count, count = 0
        cdef Py_buffer view
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        dtype = numpy.dtype(dtype)
        size = dtype.itemsize
        if size == 0 or dtype.hasobject:
            raise InvalidValueError(f"dtype {dtype} has no fixed size; give one with a fixed size", self._endpoint)
        max_count = self._count_receivable(limit)
        if limit != 0 and wait_ns != 0:  # the counted messages may be lost, retracted or excluded
            max_count = self._count_receivable(limit) if self._wait_for_message(&message, wait_ns) else 0
        max_count = min(max_count, self.c.order.capacity)  # the channel never holds more messages than its capacity
        out = numpy.empty(max_count, dtype)
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        PyBuffer_Release(&view)  # no other code has the array, so its memory stays
        self._check_usable()  # Python code may have run
        while count < max_count:
            if not (self._following_message(&message) if count else self._wait_for_message(&message, wait_ns)):
                break
            if message.length != size:
                if count:
                    break
                (<MappedPool> self._pools[message.row]).check_truncation(self._endpoint)  # may be the length of a hole
                text = f"next message has {message.length} bytes, but the dtype has {size}; use receive() instead"
                raise MessageSizeError(text, self._endpoint)
            mq_copy_from_shared(<uint8_t *> view.buf + count * size, mq_pool_slot_payload(message.slot), size)
            if not (self._accept_following(&message) if count else self._accept_message(&message)):
                if count:
                    break
                continue
            # the messages that follow from the same publisher, up to the next special case
            batch_count = 1
            if self._view is None:  # else a message may arrive again
                batch_count += mq_channel_receive_batch(
                    &self.c, <uint8_t *> view.buf + (count + 1) * size, size, max_count - count - 1, &self._last,
                    self._last_pool.not_truncated)
            count += batch_count
            if publishers is not None:
                publishers += [self._last_pool.describe_publisher()] * <Py_ssize_t> batch_count
        self._rearm_fd()
        return out[:count]

    def __iter__(self):
        return self

    def __next__(self):
        self._check_usable()
        return self._receive_copy(WAIT_FOREVER)

    # ---- views ----

    def receive_view(self, timeout=None):
        cdef mq_channel_message message
        cdef MappedPool mapped
        cdef Sample sample
        cdef int missed = 0
        cdef int64_t wait_ns = parse_timeout_ns(timeout, self._endpoint)
        self._check_usable()
        self._ensure_viewer_row()
        while self._wait_for_message(&message, wait_ns):
            if not self._can_take_views():  # a signal handler forked during the wait, and this process is the child
                self._ensure_viewer_row()
                continue
            mapped = self._pools[message.row]
            mapped.check_truncation(self._endpoint)
            if not mq_channel_pin_message(&self.c, &message, self._rows.c.viewer):
                if self._should_stop_retrying(&missed, wait_ns):
                    break
                continue
            self._rows.add_view()
            self._last, self._last_pool = message, mapped
            sample = Sample.__new__(Sample)
            expose_buffer(sample, mapped, mq_pool_slot_payload(message.slot), message.length, False)
            pin_view(sample, mapped, message.number)
            sample.position = message.position
            sample._publisher_node, sample._publisher_pid = mapped.node, mapped.pid
            sample.publish_time, sample.origin_time = message.publish_time, message.origin_time
            self._rearm_fd()
            return sample
        self._rearm_fd()
        return None

    cdef bint _can_take_views(self) noexcept:
        return self._rows is not None and self._rows.c.viewer >= 0

    cdef int _ensure_viewer_row(self) except -1:
        """Take a viewer row if needed, and check that one more view is allowed."""
        if self._rows is None:
            raise StateError("is passive, and cannot hold views; use receive(), which copies", self._endpoint)
        if self._rows.count_views() >= <uint64_t> self.max_views:
            text = f"holds {self._rows.count_views()} views, its limit (max_views); release one"
            raise TooManyViewsError(text, self._endpoint)
        if self._rows.c.viewer < 0:
            self._begin_use()
            try:
                self._rows.register_viewer()
            finally:
                self._use_state = self._fork_generation
            self._finish_requested_close()
            self._pools = [None] * MQ_CHANNEL_PUBLISHERS  # map the pools again, with writable pins
            memset(self.c.pools, 0, sizeof(self.c.pools))
        return 0

    cdef bint _read_last_stamps(self, int64_t *published, int64_t *origin) noexcept:
        published[0], origin[0] = self._last.publish_time, self._last.origin_time
        return self._last_pool is not None

    # ---- wait ----

    cdef int _reopen_in_child(self) except -1:
        """Take our own rows, and continue at the same cursor. Inherited views are the parent's."""
        self._forget_inherited_wait()
        try:
            self._register_rows()
        except SegmentError as error:
            if error.errno != ENOENT:  # ENOENT: the channel was removed, and existing handles continue without rows
                raise
        return self._finish_requested_close()

    cdef bint _can_receive_now(self) except -1:
        cdef mq_channel_message message
        cdef uint64_t lost_reported = self._lost_reported
        self._check_usable()
        try:
            return self._next_message(&message)
        except LostMessagesError:
            self._lost_reported = lost_reported  # the receive raises the loss
            return True

    cdef bint _is_readable(self) noexcept:
        cdef mq_channel_poll_state state = mq_channel_poll_state(self.c.header, &self.c.cursor, self.c.not_truncated)
        return mq_channel_subscriber_is_readable(&state)

    cdef uint32_t _prepare_wait(self) noexcept:
        if self._nap_ns or not self._file.writable:
            return mq_load_acquire_u32(&self._file.header.eventcount)
        return mq_eventcount_prepare_wait_mp(&self._file.header.eventcount)

    cdef mq_u32 *_futex_word(self) noexcept:
        return &self._file.header.eventcount

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        if not self._file.writable:
            return min(max(slept_ns // 4, <int64_t> PASSIVE_SLEEP_MIN_NS), <int64_t> PASSIVE_SLEEP_MAX_NS)
        return self._nap_ns or max(<int64_t> WAKE_TIMEOUT_NS, 2 * slept_ns)

    cdef void _end_wait(self) noexcept:
        self._nap_ns = 0  # one nap without a message is enough

    cdef mq_poll_ops _poll_ops(self) noexcept:
        cdef mq_poll_ops poll_ops
        self._poll_state = mq_channel_poll_state(self.c.header, &self.c.cursor, self.c.not_truncated)
        poll_ops = mq_poll_ops(mq_channel_subscriber_is_readable, &self._poll_state, &self._file.header.eventcount,
                               mq_poll_prepare_wait_mp, NULL, False, NULL)
        if not self._file.writable:
            poll_ops.prepare_wait = NULL
        return poll_ops

    def _open_view(self):
        """In a simulation: show only what arrives from now on, besides what is published already."""
        self._view = ArrivalView.__new__(ArrivalView)
        self._view.begin(&self.c)
        return self._view

    def _receive_now(self):
        return self.receive(0)

    def _default_timeout_ns(self):
        return None

    cdef int _abandon_rows(self) except -1:
        self.c.row = NULL
        if self._rows is not None:
            self._rows.abandon()
        return 0

    cdef int _release_rows(self) except -1:
        self.c.row = NULL
        if self._rows is not None:
            self._rows.release_rows()
        return 0

    cdef void _release_memory(self) noexcept:
        memset(self.c.pools, 0, sizeof(self.c.pools))
        self._pools = [None] * MQ_CHANNEL_PUBLISHERS
        self._last_pool = describe_only(self._last_pool)
        if self._rows is not None and self._rows.generation != fork_generation and not self._rows.count_views():
            self._rows.memory = None  # in a child. In the process that opened the rows, their last user does it
        self._memory = None

    def arecv(self):
        return load_event_loop().receive_async(self, 0.0)


def open_subscriber(ChannelFile file not None, str name not None, uint64_t history, int max_views, bint conflate,
                    bint newest, bint raises, bint own, spin_us):
    return Subscriber(file, name, history, max_views, conflate, newest, raises, own, spin_us)

"""Connect, close, fork and wait of a subscriber, without receiving. See base/waiting.pxi for the methods of a wait."""


cdef enum:
    # Longest sleeps, in nanoseconds:
    STOCK_POLL_NS = 50000000  # interval if only polling finds stock publishers (no inotify or no thread)
    PASSIVE_SLEEP_MIN_NS = 50000      # a passive subscriber announces no sleep, so it polls
    PASSIVE_SLEEP_MAX_NS = 1000000
    # First interval if all wakes work, then three times as long each time. Polling finds events without a futex wake: a
    # signal just before the system call, a publisher that died between its message and the wake, and a stock publisher
    # that opened the file before the watch began and started after the subscriber's check.
    RECHECK_NS = 1000000000


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class SubConnection(Waitable):
    """Rows and sleep of a subscriber, without receiving. See SubSocket in core.pyi."""

    def __cinit__(self):
        self._timeout_ms = WAIT_FOREVER

    def __init__(self):  # refuses arguments, which Cython would ignore
        pass

    def __dealloc__(self):
        if self._use_state != CLOSED and self._fork_generation == fork_generation:
            self._close_handle()

    def __repr__(self):
        state = "closed" if self._use_state == CLOSED else f"{self._subscriber.received} messages received"
        return f"<msgq SubSocket {self._endpoint!r}, {state}>"

    # ---- connect and close ----

    def connect(self, Context context not None, endpoint, address=b"127.0.0.1", bint conflate=False, segment_size=0, *,
                mode=None, bint passive=False, bint latest=False, spin_us=None, trust=None, prefix=None):
        cdef str name = naming.validate_endpoint_name(endpoint)
        cdef TopicFiles topic
        check_context_open(context, name)
        if self._use_state != CLOSED:
            raise StateError("socket is connected already; close it first", self._endpoint)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"address is of type {type(address).__name__}; give str or bytes")
        self._prefix = self._enter_bus(prefix, name, passive)
        self._endpoint = name
        self._trust = trust
        self._conflate = conflate or self._conflate_default
        self._passive, self._from_last = passive, latest
        self._spin_us = settings.resolve_spin_us(spin_us, name)
        memset(&self._subscriber, 0, sizeof(self._subscriber))
        self._watches_for_stock = self._stock_watch_failed = self._is_closing = self._gate_passed = False
        self._gate = self._view = None
        if self._bus is None and settings.is_fake_events_enabled():
            from msgq.impl.gate.core import FakeEventGate  # imported late: only event-gated runs need it
            self._gate = FakeEventGate(name, self._prefix, settings.read_fake_prefix())
        self._fork_generation = fork_generation
        self._begin_use()
        try:
            with settings.overrides(trust=trust):
                if passive:
                    topic = map_topic(name, self._prefix)
                else:
                    topic = open_topic(self, self._prefix, segment_size, mode, self._create)
                self._join_topic(topic)
            self._use_state = self._fork_generation
        finally:
            if self._use_state == BUSY:
                # A signal handler may have raised after the socket joined the topic.
                if self._subscriber.row != NULL and self._fork_generation == fork_generation:
                    mq_ring_subscriber_leave(&self._subscriber)
                self._use_state = CLOSED
                self._release_memory()
        self._finish_requested_close()
        if self._bus is None:
            close_at_exit(self)
        else:
            self._bus.on_opened(self)

    def _default_timeout_ns(self):
        """Return the timeout of a receive without an argument; None: forever."""
        return None if self._timeout_ms < 0 else self._timeout_ms * <int64_t> MQ_NS_PER_MS

    def _set_create(self, create):
        """Set whether `connect` must create the topic (True), must find it (False), or may do either (None)."""
        self._create = create

    def _survives_laps(self):
        """Return True if the socket reads the messages that a lap leaves: the newest, or those of one size."""
        return self._conflate or self._subscriber.record_bytes != 0

    def _set_record_bytes(self, uint64_t size):
        """Set the size of all messages, so that a lapped socket continues at the oldest message left."""
        check_usable(self)
        self._subscriber.record_bytes = size

    def _close_at_exit(self):
        if self._use_state == fork_generation:
            self.close()
        elif self._use_state == BUSY and self._fork_generation == fork_generation and self._subscriber.row != NULL:
            mq_ring_subscriber_leave(&self._subscriber)  # a daemon thread that waits with the socket stays asleep

    cdef int _join_topic(self, TopicFiles topic) except -1:
        """Subscribe from now on. The topic is locked, unless the socket is passive."""
        cdef mq_process_identity us
        try:
            read_own_identity(&us, MQ_BRIDGE_NAME if self._for_bridge else NULL)
            if topic.side is None:
                wait_for_side(topic)
            self._attach_topic(topic)
            status = mq_ring_subscriber_join(&self._subscriber, &us, self._random_u32())
            if status == MQ_RING_OK and self._from_oldest:
                status = mq_ring_subscriber_seek_oldest(&self._subscriber)
            elif status == MQ_RING_OK and self._from_last:
                status = mq_ring_subscriber_seek_last(&self._subscriber)
            if status != MQ_RING_OK:
                mq_ring_subscriber_leave(&self._subscriber)
                raise_start_error(topic)
        finally:
            topic.unlock()
        return 0

    cdef int _attach_topic(self, TopicFiles topic) except -1:
        self._ring, self._side, self._memory = topic.ring, topic.side, (topic.ring_memory, topic.side_memory)
        self._subscriber.ring = <mq_ring_header *> topic.ring.address
        self._subscriber.side = NULL if topic.side is None else <mq_ring_side *> topic.side.address
        self._subscriber.liveness_file = NULL if topic.side is None else &topic.side.liveness_file
        self._subscriber.data = topic.ring.address + MQ_RING_HEADER
        self._subscriber.data_bytes = topic.data_bytes
        self._subscriber.canary = topic.files.canary
        self._subscriber.path, self._subscriber.inode = topic.ring.file, topic.ring.inode
        self._subscriber.passive = self._passive
        if self._view is not None:
            self._view.show(self, self._subscriber.ring)
        return 0

    cdef bint _remap_if_grown(self) except -1:
        """Map the ring again if it has grown. Return False if it has not. Raise SegmentSizeError if it shrank."""
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        cdef Segment former = self._ring
        former_memory = self._memory  # keeps the previous ring until the last use
        cdef mq_ring_poll_state poll_state
        cdef bint intact = mq_canary_is_intact(&self._subscriber.canary)
        cdef bint present = mq_canary_is_nonzero(&self._subscriber.canary)
        cdef uint32_t former_bytes = self._subscriber.data_bytes
        cdef TopicFiles topic
        with settings.overrides(trust=self._trust):
            topic = remap_grown_topic(self._endpoint, former, former_memory[1], not self._passive)
        if self._use_state != fork_generation:  # a signal handler may have closed the socket
            self._reopen_or_raise()
        if topic is None:
            if not intact:
                raise size_changed_error(self._endpoint, former, self._side)
            mq_ring_subscriber_classify_publisher(&self._subscriber)  # the file may have grown and shrunk
            return False
        mq_signal_thread_unwatch_ring(&self._subscriber)
        self._watches_for_stock = False
        self._attach_topic(topic)
        mq_ring_subscriber_continue_in_grown_ring(&self._subscriber, former_bytes, present)
        poll_state = mq_ring_subscriber_poll_state(&self._subscriber)
        self._update_poll_state(&self._poll_state, &poll_state, sizeof(poll_state))
        return True

    cdef bint _advance_view(self) except -1:
        return self._view is not None and self._view.advance(&self._subscriber, self._conflate)

    def _open_view(self):
        """In a simulation: receive only what has arrived. Return what the bus reports arrivals to."""
        self._gate = self._view = ArrivalView.__new__(ArrivalView)
        self._view.begin(self)
        return self._view

    cdef int _release_rows(self) except -1:
        mq_signal_thread_unwatch_ring(&self._subscriber)
        mq_ring_subscriber_leave(&self._subscriber)
        self._gate = None
        return 0

    cdef int _abandon_rows(self) except -1:
        mq_liveness_unlock(self._subscriber.liveness_token)
        mq_ring_subscriber_detach_row(&self._subscriber)
        return 0

    cdef int _find_late_side(self) except -1:
        """Attach the side segment if a msgq publisher has created it."""
        if not mq_ring_subscriber_may_attach_side(&self._subscriber):
            return 0
        cdef TopicFiles topic
        with settings.overrides(trust=self._trust):
            topic = find_late_side(self._endpoint, self._prefix, self._ring)
        if self._use_state != fork_generation:  # a signal handler may have closed the socket
            self._reopen_or_raise()
        if topic.side is not None:
            self._side, self._memory = topic.side, (self._memory[0], topic.side_memory)
            mq_ring_subscriber_attach_side(&self._subscriber, <mq_ring_side *> self._side.address)
        return 0

    cdef int _reopen_in_child(self) except -1:
        """Take our own rows, and continue at the same cursor."""
        cdef TopicFiles topic
        cdef mq_process_identity us
        self._watches_for_stock = self._stock_watch_failed = False
        self._forget_inherited_wait()
        if self._passive:
            return 0
        mq_ring_subscriber_detach_row(&self._subscriber)
        with settings.overrides(trust=self._trust):
            topic = open_topic(self, self._prefix, 0, None)
        try:
            # If the topic was removed or truncated, new publishers do not see this socket. The socket still reads the
            # mapped ring.
            if topic.ring.inode == self._ring.inode and mq_canary_is_intact(&self._subscriber.canary):
                self._attach_topic(topic)
            read_own_identity(&us, MQ_BRIDGE_NAME if self._for_bridge else NULL)
            mq_ring_subscriber_rejoin(&self._subscriber, &us, self._random_u32())
        finally:
            topic.unlock()
        return self._finish_requested_close()

    # ---- wait ----

    cdef bint _pass_gate(self) except -1:
        """Wait until the controller of an event-gated run releases us. Return False if no gate stops us."""
        self._begin_use()
        try:
            held_up = self._gate.wait_until_released(&self._is_closing)
        finally:
            self._use_state = self._fork_generation
            if self._is_closing and self._fork_generation == fork_generation:
                self._close_handle()
        check_usable(self)  # a signal handler may have closed the socket, or forked
        return held_up

    cdef int _check_usable(self) except -1:
        return check_usable(self)

    cdef bint _poll_now(self) except -1:
        # The usual answer, without calls of functions. The base class handles all other cases.
        if (self._use_state == fork_generation and self._fd < 0 and self._view is None
                and mq_ring_subscriber_is_drained(&self._subscriber)):
            return False
        return Waitable._poll_now(self)

    cdef bint _can_receive_now(self) except -1:
        cdef mq_ring_message message
        cdef mq_ring_status status = MQ_RING_CORRUPT
        check_usable(self)
        self._advance_view()
        while status == MQ_RING_CORRUPT:
            status = mq_ring_subscriber_next_intact_message(&self._subscriber, self._conflate, &message)
            if status == MQ_RING_CORRUPT and not self._remap_for_poll():
                return True
        return status == MQ_RING_OK

    cdef bint _remap_for_poll(self) except -1:
        """Map the ring again if it has grown. Return False if it has not: the next receive raises an error."""
        try:
            return self._remap_if_grown()
        except SegmentError:
            return False

    cdef bint _begin_poll(self) except -1:
        if self._gate is None or self._view is not None:
            return False
        check_usable(self)
        self._gate_passed = self._pass_gate()
        return self._gate_passed

    cdef void _interrupt_wait(self) noexcept:
        Waitable._interrupt_wait(self)
        if self._gate is not None:
            self._gate.interrupt_wait()

    cdef bint _is_readable(self) noexcept:
        return mq_ring_subscriber_is_readable(&self._subscriber)

    cdef uint32_t _prepare_wait(self) noexcept:
        return mq_ring_subscriber_prepare_wait(&self._subscriber)

    cdef mq_u32 *_futex_word(self) noexcept:
        return mq_ring_subscriber_eventcount(&self._subscriber)

    cdef mq_poll_ops _poll_ops(self) noexcept:
        self._poll_state = mq_ring_subscriber_poll_state(&self._subscriber)
        return mq_ring_subscriber_poll_ops(&self._subscriber, &self._poll_state)

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        if self._bus is not None:  # all publishers are of this process, and announce their messages
            return INT64_MAX if not self._passive else PASSIVE_SLEEP_MAX_NS
        if self._passive:
            return min(max(slept_ns // 4, PASSIVE_SLEEP_MIN_NS), PASSIVE_SLEEP_MAX_NS)
        if not self._watches_for_stock and not self._stock_watch_failed:
            self._watch_for_stock()
        mq_ring_subscriber_recheck_publisher(&self._subscriber)
        if not self._subscriber.announces_limit and not self._route_stock_signals():
            return PASSIVE_SLEEP_MAX_NS
        return max(RECHECK_NS, 2 * slept_ns) if self._watches_for_stock else STOCK_POLL_NS

    cdef bint _route_stock_signals(self) noexcept:
        """Let a stock publisher signal the helper thread. Return False without a slot, which the signals need."""
        helper = mq_signal_thread_id() if self._watches_for_stock else 0
        if helper and self._subscriber.signal_thread != helper:
            mq_ring_subscriber_route_signals(&self._subscriber, helper)
        return self._subscriber.announces_limit or self._subscriber.slot >= 0

    cdef int _watch_for_stock(self) except -1:
        self._watches_for_stock = mq_signal_thread_watch_ring(&self._subscriber, self._subscriber.ring,
                                                              self._subscriber.side, self._subscriber.canary,
                                                              self._ring.file, self._subscriber.publisher_uid)
        self._stock_watch_failed = not self._watches_for_stock
        return 0

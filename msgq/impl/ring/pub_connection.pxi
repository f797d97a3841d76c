"""Connect, close and fork of a publisher, without sending. See PubSocket in core.pyi."""


cdef enum:
    SEND_IN_PROGRESS_NS = 1000000000
    STOCK_SEND_US = 2000


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class PubConnection:
    """See the type stub (core.pyi)."""

    def __init__(self):  # refuses arguments, which Cython would ignore
        pass

    def __dealloc__(self):
        if self._use_state != CLOSED and self._fork_generation == fork_generation:
            mq_ring_publisher_close(&self._publisher)

    def connect(self, Context context not None, endpoint, segment_size=0, *, mode=None, schema=None, trust=None,
                tracked=None, prefix=None):
        cdef str name = naming.validate_endpoint_name(endpoint)
        check_context_open(context, name)
        if self._use_state != CLOSED:
            raise StateError("socket is connected already; close it first", self._endpoint)
        if schema is not None:
            from msgq.common.schema import require_schema  # imported late: the import takes longer than a connect
            require_schema(schema)
        self._prefix = self._enter_bus(prefix, name)
        self._endpoint = name
        self._options = segment_size, mode, schema, trust, tracked
        self._fork_generation, self._use_state = fork_generation, BUSY
        try:
            self._become_publisher()
            self._use_state = self._fork_generation
        finally:
            if self._use_state == BUSY:
                self._use_state = CLOSED
                self._release_memory()
        if self._bus is None:
            close_at_exit(self)
        else:
            self._bus.on_opened(self)

    cdef int _become_publisher(self) except -1:
        """Become the endpoint's publisher with the options of `connect`."""
        cdef TopicFiles topic
        cdef mq_schema_parts at
        segment_size, mode, schema, trust, tracked = self._options
        with settings.overrides(trust=trust):
            topic = open_topic(self, self._prefix, segment_size, mode)
        try:
            if schema is not None:
                self._populate_schema(topic)  # first: if the memory is full, the previous publisher goes on
            self._start_publishing(topic, tracked)
            try:
                if schema is not None:
                    mq_ring_publisher_begin_schema(&self._publisher)
                    at = mq_ring_side_schema(self._publisher.side)
                    write_schema(&at, schema)
                if self._publisher.stamps and self._bus is None:
                    # Call this before the first send, because Python code must not run between two steps of a send.
                    prepare_origins()
            except BaseException:
                mq_ring_publisher_close(&self._publisher)
                raise
        finally:
            topic.unlock()
        return 0

    cdef int _populate_schema(self, TopicFiles topic) except -1:
        if not mq_ring_side_populate_schema(<mq_ring_side *> topic.side.address):
            raise segment_error("cannot allocate memory for the schema", self._endpoint, topic.side.path, ENOSPC)
        return 0

    cdef int _reopen_in_child(self) except -1:
        """In a forked child, take over from the parent (docs/internals/topic-protocol.md, "Fork")."""
        cdef Segment ring = self._ring, side = self._side
        memory = self._memory
        cdef mq_ring_publisher inherited
        mq_ring_publisher_detach_row(&self._publisher)
        inherited = self._publisher
        try:
            return self._become_publisher()
        except BaseException:
            self._ring, self._side, self._memory, self._publisher = ring, side, memory, inherited
            raise

    cdef int _start_publishing(self, TopicFiles topic, tracked) except -1:
        """Become the endpoint's publisher. The topic is locked."""
        cdef uint64_t former = 0
        cdef mq_error error
        cdef mq_process_identity us
        # Read the identity before taking a row, because the call may raise.
        read_own_identity(&us, MQ_BRIDGE_NAME if self._for_bridge else NULL)
        memset(&self._publisher, 0, sizeof(self._publisher))
        self._publisher.for_bridge = self._for_bridge
        self._ring, self._side, self._memory = topic.ring, topic.side, (topic.ring_memory, topic.side_memory)
        self._publisher.ring = <mq_ring_header *> topic.ring.address
        self._publisher.side = <mq_ring_side *> topic.side.address
        self._publisher.data = topic.ring.address + MQ_RING_HEADER
        self._publisher.data_bytes = topic.data_bytes
        self._publisher.canary = topic.files.canary
        self._publisher.needs_fence = not can_order_stores()
        self._publisher.liveness_file = &topic.side.liveness_file
        self._publisher.track = MQ_TRACK_UNCHANGED if tracked is None else MQ_TRACK_YES if tracked else MQ_TRACK_NO
        self._clock_offset_ns = host_offset_ns() if self._bus is None else 0
        if not mq_ring_side_can_track(self._publisher.ring, self._publisher.side, self._publisher.track):
            raise tracking_mismatch_error(self._endpoint, tracked)
        if mq_topic_claim_ring(&self._publisher, &us, self._random_u32(), &former, &error):
            raise_error(&error, self._endpoint)
        try:
            self._wait_for_previous_send(former)
            status = mq_ring_publisher_start(&self._publisher, &us)
            if status == MQ_RING_UNTRACKED:
                raise tracking_mismatch_error(self._endpoint, tracked)
            if status != MQ_RING_OK:
                raise_start_error(topic)
        except BaseException:
            mq_ring_publisher_release_ring(&self._publisher, former)
            raise
        if self._bus is not None:  # private memory is there
            self._publisher.populated_from, self._publisher.populated_to = 0, topic.data_bytes
        return 0

    cdef int _wait_for_previous_send(self, uint64_t uid) except -1:
        """Wait for the end of the previous publisher's send. That publisher sees write_uid and starts no other send."""
        cdef const mq_ring_publisher_row *former
        cdef int64_t deadline = self._now_ns() + SEND_IN_PROGRESS_NS
        cdef bint late = False  # set once in each round, so that the test and its consequence agree
        stock_publisher_lives = self._publisher.after_stock and mq_thread_liveness(<uint32_t> uid) != MQ_DEAD
        if (stock_publisher_lives or self._publisher.unordered) and self._bus is None:
            with nogil:  # the previous publisher announces sends late or never; a send takes microseconds
                usleep(STOCK_SEND_US)
        # After the deadline, wait only for publishers that are known to live. Without locks, the liveness of a
        # publisher in another PID namespace is unknown.
        while (former := mq_ring_find_sending_publisher(&self._publisher, late)) != NULL:
            if late:
                pid = mq_ring_publisher_pid(former)
                text = f"process {pid} has been sending (or holding a reservation) for 1 s"
                raise MultiplePublishersError(f"{text}; stop the process, then connect again", self._endpoint)
            if self._bus is not None:
                self._bus.wait_until(self._has_previous_send_ended, SEND_IN_PROGRESS_NS,
                                     f"the end of a send on {self._endpoint!r}")
            else:
                with nogil:
                    usleep(50)
                PyErr_CheckSignals()
            late = self._now_ns() >= deadline
        return 0

    @property
    def _requested_schema(self):
        return self._options[2]

    def _has_previous_send_ended(self):
        return mq_ring_find_sending_publisher(&self._publisher, False) == NULL

    def unlink(self):
        if self._use_state == CLOSED:
            raise usage_error(self._use_state, self._endpoint)
        return unlink_topic(self._endpoint, self._prefix)

    def close(self, linger=None):
        if linger is not None:
            check_linger(linger, self._endpoint)
        if self._use_state == CLOSED:
            return
        if self._fork_generation == fork_generation:
            if self._use_state != fork_generation:  # another thread still writes to the ring
                raise usage_error(self._use_state, self._endpoint)
            mq_ring_publisher_close(&self._publisher)
        else:
            mq_ring_publisher_detach_row(&self._publisher)
        self._use_state = CLOSED
        self._release_memory()

    def _abandon_handle(self):
        """See `Waitable._abandon_handle`."""
        if self._use_state == CLOSED or self._fork_generation != fork_generation:
            return
        mq_liveness_unlock(self._publisher.liveness_token)
        mq_ring_publisher_detach_row(&self._publisher)
        self._use_state = CLOSED
        self._release_memory()

    cdef int _check_truncation(self) except -1:
        """Check the size of the files, too: without the SIGBUS handler, the canary never changes."""
        cdef bint cut = mq_file_shrank(self._ring.file, self._ring.inode, self._ring.size)
        cut = cut or mq_file_shrank(self._side.file, self._side.inode, self._side.size)
        if cut or not mq_canary_is_intact(&self._publisher.canary):
            raise size_changed_error(self._endpoint, self._ring, self._side)
        return 0

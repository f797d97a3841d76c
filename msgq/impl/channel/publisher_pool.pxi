"""A publisher's row and pool: create, grow, and retire.

The file's lock excludes other joining processes. See header.h.
"""


cdef enum:
    DEFAULT_SLOT_BYTES = 4096
    DEFAULT_POOL_BYTES = 67108864  # default limit; a pool with four slots may be larger
    MIN_SLOTS = 4
    SPARE_SLOTS = 2  # slots beyond the capacity: one that is being written, and one that was just evicted


@no_gc_clear  # __dealloc__ needs the mappings
cdef class PublisherPool:
    """A row of the file and its pool, from which this process publishes."""
    def __dealloc__(self):
        if self.generation == fork_generation:
            self._release_row()
        mq_channel_publisher_free(&self.c)

    cdef void _release_row(self) noexcept:
        if self.open:
            mq_participant_leave(&self.c.row.participant, self.c.slots.uid, &self.liveness_token)
        self.open = False

    cdef void release_memory(self) noexcept:
        """Release the memory, unless a loan is open. The last loan retires the pool."""
        if not self.open_loans:
            self.channel_memory = None
            self.pool_file.release()

    cdef int retire(self, bint removes_pool) except -1:
        """Retire the pool. Its messages in the order stay, and so does the pool.

        `removes_pool`: remove the pool now if it has no messages. Otherwise the next joining process removes it.
        """
        cdef mq_file_lock lock
        if not self.open or self.open_loans:
            return 0
        self._release_row()
        try:
            if removes_pool and self.channel_file.lock(&lock, False):
                try:
                    remove_dead_pools(self.channel_file)
                finally:
                    self.channel_file.unlock(&lock)
        except MsgqError:
            pass  # the next joining process removes the pool
        finally:
            self.release_memory()
        return 0

    cdef int cancel_loan(self, uint64_t slot, bint removes_pool) except -1:
        """End a loan without a message."""
        mq_channel_return_slot(&self.c, slot)
        return self.end_loan(removes_pool)

    cdef int end_loan(self, bint removes_pool) except -1:
        """End a loan."""
        self.open_loans -= 1
        if self.superseded:
            self.retire(removes_pool)
        return 0


cdef PublisherPool register_publisher(ChannelFile file, str node, slots, slot_bytes, uint64_t max_bytes, bint newcomer):
    """Take a row and create its pool with `slots` slots (None: the default) of `slot_bytes` payload bytes."""
    cdef PublisherPool pool = PublisherPool.__new__(PublisherPool)
    cdef int row, remaining
    cdef mq_file_lock lock
    cdef uint64_t each = slot_bytes or DEFAULT_SLOT_BYTES
    pool.channel_file = file
    file.lock(&lock)
    try:
        pool.generation = fork_generation
        file._apply_config_locked(None, None, None, None, True)
        remaining = remove_dead_pools(file)
        if newcomer:
            _check_publisher_limit(file)
        file.require_lock(&lock)
        row = mq_channel_find_free_row(file.header, &lock.file, &pool.liveness_token)
        while row == MQ_NO_ROW and remaining:
            remaining = remove_dead_pools(file, remaining - 1)
            file.require_lock(&lock)
            row = mq_channel_find_free_row(file.header, &lock.file, &pool.liveness_token)
        if row == MQ_NO_ROW:
            text = f"all {MQ_CHANNEL_PUBLISHERS} rows of publishers are in use: {_describe_row_owners(file)}"
            raise TooManyPublishersError(text, file.name)
        try:
            _fill_publisher_row(pool, &lock, row, node, _choose_slot_count(file, slots, each, max_bytes), each)
        except BaseException:
            if lock.fd >= 0:  # a forked child has not inherited the page
                mq_liveness_unlock(pool.liveness_token)
            pool.liveness_token = NULL
            raise
    finally:
        file.unlock(&lock)
    return pool


cdef int _fill_publisher_row(PublisherPool pool, const mq_file_lock *lock, int number, str node, uint64_t slots,
                             uint64_t slot_bytes) except -1:
    """Create the pool, register it in the row, and then give it its name. So no named pool is without a row."""
    cdef ChannelFile file = pool.channel_file
    cdef mq_process_identity identity
    cdef mq_channel_publisher_row *row = &file.header.publishers[number]
    cdef bytes name = node.encode()
    read_own_identity(&identity, NULL)
    offset = host_offset_ns()
    pool.pool_file = make_pool(file, slots, slot_bytes, identity.pid, node)
    pool.c.slots, pool.c.header, pool.c.row, pool.c.number = pool.pool_file.slots, file.header, row, number
    pool.c.stamps = mq_channel_config_unpack(mq_load_acquire_u64(&file.header.config)).stamps == MQ_CHANNEL_STAMPED
    pool.c.clock_offset, pool.c.liveness_file = offset, file.liveness_file()
    if not mq_channel_load_index_ring(file.header, &pool.c.order):  # invalid, because the capacity was just set
        raise CorruptSegmentError("has an invalid order: another program wrote into the file; remove it (msgq "
                                  "clean)", file.name,
                                  file.path)
    if not mq_channel_publisher_init(&pool.c, pool.pool_file.has_holes):
        raise MemoryError()
    file.require_lock(lock)
    mq_channel_publisher_register(row, &identity, pool.liveness_token != NULL, &pool.c.slots,
                                  pool.pool_file.segment.size, pool.pool_file.segment.inode, name)
    try:
        name_pool(pool.pool_file)
    except BaseException:
        if lock.fd >= 0:
            mq_channel_release_row(row)
        raise
    pool.open = True
    file.own_pools[number] = pool.c.slots.uid
    if mq_eventcount_has_waiters_mp(&file.header.eventcount):  # notify: a publisher may have died before its wake
        mq_eventcount_notify_mp(&file.header.eventcount)
    return 0


cdef uint64_t _choose_slot_count(ChannelFile file, asked, uint64_t slot_bytes, uint64_t max_bytes) except 0:
    """Return the number of slots: as requested, or one for each entry and some spare ones, within the limits."""
    cdef uint64_t stride = mq_pool_slot_stride_bytes(slot_bytes)
    cdef uint64_t wanted = mq_channel_config_unpack(mq_load_acquire_u64(&file.header.config)).capacity + SPARE_SLOTS
    if asked is None:
        wanted = max(min(wanted, <uint64_t> DEFAULT_POOL_BYTES // stride), <uint64_t> MIN_SLOTS)
    else:
        wanted = asked
    if asked is None and wanted * stride > max_bytes:
        wanted = max(max_bytes // stride, <uint64_t> 1)
    if wanted * stride > max_bytes:
        text = (f"{wanted} slots of {slot_bytes} bytes need {wanted * stride}; the pool is limited to "
                f"{max_bytes} bytes (max_bytes)")
        raise MessageTooLargeError(text, file.name)
    return wanted


cdef int _check_publisher_limit(ChannelFile file) except -1:
    """Refuse a new publisher if the channel has its maximum number.

    A publisher with rows kept for loans counts once.
    """
    cdef mq_channel_config g = mq_channel_config_unpack(mq_load_acquire_u64(&file.header.config))
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(file.liveness_file())
    cdef int living = 0
    for i in range(MQ_CHANNEL_PUBLISHERS):
        if mq_load_relaxed_u64(&file.header.publishers[i].superseded) == 0:
            living += mq_channel_publisher_liveness(file.header, &probe, i) != MQ_DEAD
    mq_liveness_probe_end(&probe)
    if <uint64_t> living >= g.publishers:
        text = f"number of publishers is at its limit ({g.publishers}): {_describe_row_owners(file)}"
        raise TooManyPublishersError(text, file.name)
    return 0


cdef str _describe_row_owners(ChannelFile file):
    """Return the owners of the rows, for an error."""
    cdef const mq_channel_publisher_row *row
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(file.liveness_file())
    cdef dict count = {}
    for i in range(MQ_CHANNEL_PUBLISHERS):
        if mq_channel_publisher_liveness(file.header, &probe, i) != MQ_DEAD:
            row = &file.header.publishers[i]
            process = f"{_text(row.node, MQ_NODE_NAME_BYTES)} {mq_load_relaxed_u64(&row.participant.pid)}"
            count[process] = count.get(process, 0) + 1
    mq_liveness_probe_end(&probe)
    return ", ".join(f"{process} ({rows} rows)" if rows > 1 else process for process, rows in count.items())

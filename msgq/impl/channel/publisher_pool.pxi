"""A publisher's row and pool: create, grow, and retire.

The file's lock excludes other joining processes. See join.h.
"""


@no_gc_clear  # __dealloc__ needs the mappings
cdef class PublisherPool:
    """A row of the file and its pool, from which this process publishes."""
    def __dealloc__(self):
        if self.generation == fork_generation:
            self._release_row()
        mq_channel_publisher_free(&self.c)

    cdef void _release_row(self) noexcept:
        if self.open:
            mq_channel_leave(&self.c, &self.liveness_token)
        self.open = False

    cdef void abandon(self) noexcept:
        """Leave the row as it is. Only on a bus."""
        mq_channel_abandon(&self.liveness_token)
        self.open = False
        self.channel_memory = self.memory = None

    cdef int check_truncation(self) except -1:
        if mq_mapping_was_truncated(self.not_truncated):
            raise truncated_error(self.channel_file.name, self.segment)
        return 0

    cdef void release_memory(self) noexcept:
        """Release the memory, unless a loan is open. The last loan retires the pool."""
        if not self.open_loans:
            self.channel_memory = self.memory = None

    cdef int retire(self, bint removes_pool) except -1:
        """Retire the pool. Its messages in the order stay, and so does the pool.

        `removes_pool`: remove the pool now if it has no messages. Otherwise the next joining process removes it.
        """
        cdef mq_file_lock lock
        cdef mq_channel_files files = self.channel_file.describe_files()
        cdef mq_error error  # after an error, the next joining process removes the pool
        if not self.open or self.open_loans:
            return 0
        self._release_row()
        try:
            if removes_pool and self.channel_file.lock(&lock, False):
                mq_channel_sweep(&files, &lock, &error)
                self.channel_file.unlock(&lock)
        except MsgqError:
            pass  # the next joining process removes the pool
        finally:
            self.release_memory()
        return 0

    cdef int adopt(self, const mq_channel_files *files, mq_mapping *mapping) except -1:
        """Take the mapping of the new pool, which this process has just named."""
        cdef char path[MQ_ERROR_PATH_BYTES]
        mq_pool_path(files, self.c.slots.uid, path)
        self.open = True
        self.segment = adopt_mapping(mapping, path.decode())
        self.memory = use_memory(self.segment, sizeof(mq_pool_header))  # a closed publisher still describes its pool
        self.not_truncated = self.segment.not_truncated
        self.channel_file.own_pools[self.c.number] = self.c.slots.uid
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
    cdef mq_process_identity identity
    cdef mq_channel_join_request request
    cdef mq_file_lock lock
    cdef mq_channel_files files = file.describe_files()
    cdef mq_pool_file made
    cdef mq_error error
    cdef bytes name = node.encode()
    cdef int failed
    request.slots, request.max_bytes = slots or 0, max_bytes
    request.slot_bytes = slot_bytes or MQ_POOL_SLOT_BYTES_DEFAULT
    request.self, request.node, request.replaces = &identity, name, not newcomer
    request.pool_uid = file.make_uid()
    request.clock_offset = host_offset_ns() if file.bus is None else 0
    request.virtual_ns = NULL if file.bus is None else &file.bus.clock.now_ns
    pool.channel_file = file
    file.lock(&lock)
    try:
        read_own_identity(&identity, NULL)  # a signal handler may have forked this process before the lock
        pool.generation = fork_generation
        with nogil:
            failed = mq_channel_join(&files, &lock, &request, &pool.c, &pool.liveness_token, &made, &error)
    finally:
        file.unlock(&lock)
    if failed:
        raise_error(&error, file.name)
    pool.adopt(&files, made.mapping)
    return pool

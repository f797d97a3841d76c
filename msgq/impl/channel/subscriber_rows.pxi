"""The rows of a subscriber, and its mapped pools. Both stay while one of its views exists."""


@no_gc_clear  # __dealloc__ needs the file and the rows
cdef class SubscriberRows:
    """See core.pxd."""

    def __cinit__(self):
        self.c.viewer = MQ_NO_ROW
        self.generation = fork_generation
        mq_store_release_u64(&self.users, 1)

    def __dealloc__(self):
        self.release_rows()

    cdef int register_subscriber(self, str node) except -1:
        """Take a subscriber row if one is free. Raise if the channel has its maximum number of subscribers."""
        cdef mq_process_identity identity
        cdef mq_file_lock lock
        cdef mq_channel_files files = self.file.describe_files()
        cdef mq_error error
        cdef bytes name = node.encode()
        self.file.lock(&lock)
        try:
            read_own_identity(&identity, NULL)  # a signal handler may have forked this process before the lock
            failed = mq_channel_register_subscriber(&files, &lock, &identity, self.file.make_uid(), name, &self.c,
                                                    &error)
        finally:
            self.file.unlock(&lock)
        return raise_error(&error, self.file.name) if failed else 0

    cdef int register_viewer(self) except -1:
        """Take a viewer row, a bit in pins."""
        cdef mq_process_identity identity
        cdef mq_file_lock lock
        cdef mq_channel_files files = self.file.describe_files()
        cdef mq_error error
        self.file.lock(&lock)
        try:
            read_own_identity(&identity, NULL)
            failed = mq_channel_register_viewer(&files, &lock, &identity, self.file.make_uid(), &self.c, &error)
        finally:
            self.file.unlock(&lock)
        return raise_error(&error, self.file.name) if failed else 0

    cdef uint64_t count_views(self) noexcept:
        """Return the number of views, for the subscriber, which is the only other user."""
        return mq_load_relaxed_u64(&self.users) - (0 if self.closed else 1)

    cdef void add_view(self) noexcept:
        mq_add_to_shared_counter(&self.users, 1)
        if self.c.row != NULL:
            mq_add_to_shared_counter(&self.c.row.views_held, 1)

    cdef void remove_view(self) noexcept:
        if self.c.row != NULL:
            mq_add_to_shared_counter(&self.c.row.views_held, <uint64_t> -1)
        self._remove_user()

    cdef void _remove_user(self) noexcept:
        """Leave the rows with the last user. In a forked child they are the parent's."""
        if mq_add_to_shared_counter(&self.users, <uint64_t> -1) == 0 and self.generation == fork_generation:
            mq_channel_leave_rows(&self.c)
            self.memory = None

    cdef void release_rows(self) noexcept:
        """End the subscriber's use of the rows."""
        if not self.closed:
            self.closed = True
            self._remove_user()

    cdef void abandon(self) noexcept:
        """Leave the rows and the pins of views as they are. Only on a bus."""
        if not self.closed:
            mq_add_to_shared_counter(&self.users, <uint64_t> -1)  # views are counted also after the end of the process
        self.closed = self.abandoned = True
        mq_channel_abandon_rows(&self.c)
        self.memory = None


cdef object _make_publisher_info(str node, uint64_t pid):
    from msgq.common.stats.channel import PublisherInfo  # imported late: dataclasses take longer than an opening
    return PublisherInfo(node, pid)


@no_gc_clear  # _unpin_part needs the mapping
cdef class MappedPool(PinOwner):
    """See core.pxd."""

    cdef object describe_publisher(self):
        if self._publisher_info is None:
            self._publisher_info = _make_publisher_info(self.node, self.pid)
        return self._publisher_info

    cdef int adopt(self, const mq_pool_file *pool, str path) except -1:
        """Take over the mapping of a pool."""
        self.segment, self.slots = adopt_mapping(pool.mapping, path), pool.slots
        self.memory, self.not_truncated = use_memory(self.segment), self.segment.not_truncated
        self.node = _text(pool.slots.pool_header.node, MQ_NODE_NAME_BYTES)
        self.pid = mq_load_relaxed_u64(&pool.slots.pool_header.pid)
        return 0

    cdef int check_truncation(self, str endpoint) except -1:
        if mq_mapping_was_truncated(self.not_truncated):
            raise truncated_error(endpoint, self.segment)
        return 0

    cdef void _unpin_part(self, uint64_t slot) noexcept:
        if self.rows.abandoned:
            return
        mq_pool_pin_clear(&self.slots, slot, self.rows.c.viewer)
        self.rows.remove_view()


cdef MappedPool describe_only(MappedPool mapped):
    """Return a pool without memory, which describes the publisher of the last message."""
    if mapped is None:
        return None
    cdef MappedPool described = MappedPool.__new__(MappedPool)
    described.node, described.pid, described._publisher_info = mapped.node, mapped.pid, mapped._publisher_info
    return described


cdef MappedPool open_pool(ChannelFile file, uint64_t uid, bint views):
    """Map the pool of a publisher. `views`: map its pins writable. Return None if the file does not exist."""
    cdef mq_channel_files files = file.describe_files()
    cdef mq_pool_file pool
    cdef mq_error error
    cdef MappedPool mapped = MappedPool.__new__(MappedPool)
    cdef str path = shm_paths.pool_path(file.name, file.prefix, uid)
    cdef bytes encoded = path.encode()
    cdef int failed, fd = -1
    with settings.overrides(trust=file.trust):
        fd = open_file(file.name, path, O_RDWR if views else O_RDONLY)
    if fd < 0:
        return None
    failed = mq_pool_check_file(&files, fd, encoded, &pool, &error)
    if not failed:
        failed = mq_pool_map_file(&files, fd, uid, views, encoded, &pool, &error)
    mq_close_file(fd)
    if failed:
        raise_error(&error, file.name)
    mapped.adopt(&pool, path)
    return mapped

"""The rows of a subscriber, and its mapped pools. Both stay while one of its views exists."""


@no_gc_clear  # __dealloc__ needs the file and the rows
cdef class SubscriberRows:
    """See core.pxd."""

    def __cinit__(self):
        self.viewer = -1
        self.generation = fork_generation

    def __dealloc__(self):
        self.release_rows()

    cdef int register_subscriber(self, str node) except -1:
        """Take a subscriber row if one is free. Raise if the channel has its maximum number of subscribers."""
        cdef mq_process_identity identity
        cdef mq_channel_config g
        cdef mq_row_table row_table
        cdef int row
        cdef mq_file_lock lock
        cdef bytes name = node.encode()
        self.file.lock(&lock)
        try:
            g = mq_channel_config_unpack(mq_load_acquire_u64(&self.file.header.config))
            if 0 < g.subscribers <= MQ_CHANNEL_SUBSCRIBERS:
                # Count all rows, because some subscribers may have joined before the limit was set.
                subscribers = self.file.describe_subscribers()
                if len(subscribers) >= <int> g.subscribers:
                    text = f"number of subscribers is at its limit ({g.subscribers}): {', '.join(subscribers)}"
                    raise TooManySubscribersError(text, self.file.name)
            read_own_identity(&identity, NULL)  # a signal handler may have forked this process before the lock
            row_table = mq_channel_subscriber_row_table(self.file.header, MQ_CHANNEL_SUBSCRIBERS)
            row = mq_row_table_reserve(&row_table, &lock.file, &self.row_token)
            if row != MQ_NO_ROW:
                self.row = &self.file.header.subscribers[row]
                self.row_uid = new_uid()
                mq_channel_subscriber_register(self.row, &identity, self.row_uid, self.row_token != NULL, name)
            else:
                # The shared lock keeps the channel from removal.
                self.row_token = mq_liveness_lock(&lock.file, MQ_CHANNEL_OPEN_BYTE, True)
        finally:
            self.file.unlock(&lock)
        return 0

    cdef int register_viewer(self) except -1:
        """Take a viewer row, a bit in pins. First clear a dead owner's pins in all pools of living publishers."""
        cdef mq_process_identity identity
        cdef int row
        cdef mq_file_lock lock
        self.file.lock(&lock)
        try:
            read_own_identity(&identity, NULL)
            row = mq_channel_find_free_viewer(self.file.header, self.file.liveness_file(), 0)
            while row != MQ_NO_ROW:
                if mq_channel_viewer_row_is_stale(self.file.header, row):
                    _clear_dead_viewer_pins(self.file, row)
                self.viewer_token = mq_liveness_lock(&lock.file, MQ_CHANNEL_VIEWER_BYTE + row, False)
                # EAGAIN: the row's owner is leaving, or a child of the owner holds the lock
                if self.viewer_token != NULL or errno != EAGAIN:
                    break
                row = mq_channel_find_free_viewer(self.file.header, self.file.liveness_file(), row + 1)
            if row == MQ_NO_ROW:
                text = f"has {MQ_CHANNEL_VIEWERS} subscribers with views, its limit; use receive(), which copies"
                raise TooManySubscribersError(text, self.file.name)
            self.viewer_uid = new_uid()
            mq_participant_write(&self.file.header.viewers[row].participant, &identity, self.viewer_uid,
                                 self.viewer_token != NULL)
            self.viewer = row
            if self.row != NULL:
                mq_store_release_u64(&self.row.viewer, row + 1)
        finally:
            self.file.unlock(&lock)
        return 0

    cdef void add_views_held(self, int by) noexcept:
        self.views_held += by
        if self.row != NULL:
            mq_store_release_u64(&self.row.views_held, self.views_held)

    cdef void release_rows(self) noexcept:
        """Release the rows, now or after the last view. In a forked child they are the parent's."""
        self.closed = True
        if self.views_held or self.generation != fork_generation:
            return
        if self.row != NULL:
            mq_participant_leave(&self.row.participant, self.row_uid, &self.row_token)
            self.row = NULL
        mq_liveness_unlock(self.row_token)
        self.row_token = NULL
        if self.viewer >= 0:
            mq_participant_leave(&self.file.header.viewers[self.viewer].participant, self.viewer_uid,
                                 &self.viewer_token)
            self.viewer = -1
        self.memory = None


cdef int _clear_dead_viewer_pins(ChannelFile file, int viewer) except -1:
    """Clear a dead viewer's pins in pools of living publishers. Pools of dead publishers are not written again."""
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(file.liveness_file())
    cdef PoolFile pool
    cdef uint64_t uid
    try:
        for i in range(MQ_CHANNEL_PUBLISHERS):
            uid = mq_load_acquire_u64(&file.header.publishers[i].pool_uid)
            if uid and mq_channel_publisher_liveness(file.header, &probe, i) != MQ_DEAD:
                pool = open_pool(file, uid, True)
                if pool is not None:
                    mq_channel_clear_dead_viewer_pins(&pool.slots, viewer)
    finally:
        mq_liveness_probe_end(&probe)
    return 0


cdef object _make_publisher_info(str node, uint64_t pid):
    from msgq.common.stats.channel import PublisherInfo  # imported late: dataclasses take longer than an opening
    return PublisherInfo(node, pid)


@no_gc_clear  # _unpin_part needs the mapping
cdef class MappedPool(PinOwner):
    """See core.pxd."""

    cdef object describe_publisher(self):
        if self._publisher_info is None:
            self._publisher_info = _make_publisher_info(self.pool_file.node, self.pool_file.pid)
        return self._publisher_info

    cdef void _unpin_part(self, uint64_t slot) noexcept:
        mq_pool_pin_clear(&self.pool_file.slots, slot, self.rows.viewer)
        self.rows.add_views_held(-1)
        if self.rows.closed:
            self.rows.release_rows()


cdef MappedPool describe_only(MappedPool mapped):
    """Return a pool without memory, which describes the publisher of the last message."""
    if mapped is None:
        return None
    cdef MappedPool described = MappedPool.__new__(MappedPool)
    described.pool_file, described._publisher_info = PoolFile.__new__(PoolFile), mapped._publisher_info
    described.pool_file.node, described.pool_file.pid = mapped.pool_file.node, mapped.pool_file.pid
    return described

"""Read a channel's files for msgq.stats and `Channel.diagnose`: mapped read-only, without a lock or a trace."""


_CHANNEL_KINDS = ("pubsub", "broadcast", "mailbox")


cdef class _ChannelSnapshot:
    """A snapshot of a channel."""
    cdef ChannelFile file
    cdef mq_index_ring order
    cdef mq_liveness_probe probe
    cdef mq_channel_view_counts views_by_viewer[64]  # number of views of each viewer row
    cdef dict pool_bytes_by_uid  # uid of each pool: bytes of the pool

    cdef object read_publishers(self):
        cdef const mq_channel_publisher_row *row
        cdef mq_channel_published_slot_set ordered
        cdef uint64_t uid
        from msgq.common.stats.channel import ChannelPublisher  # imported late: few programs read statistics
        publishers = []
        for i in range(MQ_CHANNEL_PUBLISHERS):
            row = &self.file.header.publishers[i]
            uid = mq_load_acquire_u64(&row.pool_uid)
            if not uid:
                continue
            mq_channel_snapshot_slots(&self.order, i, &ordered)
            has_left = mq_load_acquire_u64(&row.participant.uid) == 0
            life = mq_channel_publisher_liveness(self.file.header, &self.probe, i)
            publishers.append(ChannelPublisher(
                read_participant(&row.participant, life), _text(row.node, MQ_NODE_NAME_BYTES),
                mq_load_relaxed_u64(&row.slots), mq_load_relaxed_u64(&row.slot_bytes), mq_load_relaxed_u64(&row.sent),
                mq_load_relaxed_u64(&row.bytes), mq_load_relaxed_u64(&row.refused), mq_load_relaxed_u64(&row.evicted),
                ordered.messages, shm_paths.pool_path(self.file.name, self.file.prefix, uid),
                self.read_pool_views(uid, &ordered), has_left, mq_load_relaxed_u64(&row.superseded) != 0))
        return tuple(publishers)

    cdef object read_pool_views(self, uint64_t uid, const mq_channel_published_slot_set *ordered):
        """Count the views of a pool. Return its bytes, or None if it is unreadable."""
        cdef MappedPool pool = None
        try:
            pool = open_pool(self.file, uid, False)
        except SegmentError:
            pass
        if pool is None:
            return None
        mq_channel_snapshot_views(&pool.slots, ordered, self.views_by_viewer)
        return pool.segment.size

    cdef tuple read_subscribers(self):
        """Return the subscribers with rows, and the name of each viewer."""
        cdef mq_channel_subscriber_snapshot copy
        cdef const mq_channel_subscriber_row *row
        cdef mq_liveness life
        from msgq.common.stats.channel import ChannelSubscriber  # imported late: few programs read statistics
        subscribers, nodes = [], {}
        for i in range(MQ_CHANNEL_SUBSCRIBERS):
            row = &self.file.header.subscribers[i]
            if not mq_load_acquire_u64(&row.participant.uid):
                continue
            life = mq_participant_liveness(&self.probe, &row.participant, MQ_CHANNEL_SUBSCRIBER_BYTE + i)
            mq_channel_snapshot_subscriber(row, &copy)
            if life != MQ_DEAD and self.order.capacity:
                mq_channel_snapshot_count_unread(&self.order, &copy)
            node = _text(row.node, MQ_NODE_NAME_BYTES)
            nodes[copy.viewer] = node
            lag = None if life == MQ_DEAD else copy.lag
            subscribers.append(ChannelSubscriber(read_participant(&row.participant, life), node, copy.cursor, lag,
                                                 copy.received, copy.lost, copy.resets, copy.views_held))
        return tuple(subscribers), nodes

    cdef object read_view_holders(self, dict nodes):
        cdef const mq_participant *owner
        cdef mq_channel_view_counts *views
        from msgq.common.stats.channel import ViewHolder  # imported late: few programs read statistics
        holders = []
        for i in range(MQ_CHANNEL_VIEWERS):
            owner = &self.file.header.viewers[i].participant
            views = &self.views_by_viewer[i]
            if mq_load_acquire_u64(&owner.uid) or views.views:
                life = mq_participant_liveness(&self.probe, owner, MQ_CHANNEL_VIEWER_BYTE + i)
                holders.append(ViewHolder(read_participant(owner, life), nodes.get(i + 1, ""), views.views,
                                          views.outdated, views.publish_time or None))
        return tuple(holders)

    cdef tuple list_orphaned_pools(self):
        """Return pools without a row. The files were listed first: a row is registered before its pool has a name."""
        uids = {mq_load_acquire_u64(&self.file.header.publishers[i].pool_uid) for i in range(MQ_CHANNEL_PUBLISHERS)}
        paths = [shm_paths.pool_path(self.file.name, self.file.prefix, uid)
                 for uid in self.pool_bytes_by_uid if uid not in uids]
        return tuple(filter(read_file_status, paths))


cdef object describe_this_process():
    """Return this process as a `Participant`, as other processes' statistics show it."""
    cdef mq_process_identity identity
    from msgq.common.stats import Participant  # imported late: few programs read statistics
    read_own_identity(&identity, NULL)
    return Participant(identity.pid, identity.thread_id, identity.start_time, _text(identity.name,
                                                                                    sizeof(identity.name)), True)


cdef object read_channel_stats(ChannelFile file):
    """Return the statistics of a mapped channel."""
    cdef _ChannelSnapshot snapshot = _ChannelSnapshot.__new__(_ChannelSnapshot)
    from msgq.common.stats.channel import ChannelStats  # imported late: few programs read statistics
    snapshot.file = file
    snapshot.pool_bytes_by_uid = list_pool_sizes(file.name, file.prefix)
    if not mq_channel_load_index_ring(file.header, &snapshot.order):
        snapshot.order.capacity = 0
    snapshot.probe = mq_liveness_probe_begin(&file.segment.liveness_file)
    try:
        publishers = snapshot.read_publishers()
        subscribers, nodes = snapshot.read_subscribers()
        viewers = snapshot.read_view_holders(nodes)
        opened = is_alive(mq_liveness_is_locked(&snapshot.probe, MQ_CHANNEL_OPEN_BYTE))
    finally:
        mq_liveness_probe_end(&snapshot.probe)
    kind = mq_load_relaxed_u64(&file.header.kind)
    return ChannelStats(
        file.name, shm_paths.strip_bus(file.prefix), file.path, _CHANNEL_KINDS[kind] if kind < <uint64_t>
        len(_CHANNEL_KINDS) else "pubsub",
        *file.config, file.messages, file.creator, file.created_ns, file.schema, file.segment.size,
        sum(snapshot.pool_bytes_by_uid.values()), publishers, subscribers, viewers, opened,
        snapshot.list_orphaned_pools())


cdef object read_channel_counts(ChannelFile file):
    """Return the counters of a mapped channel, without reading its pools."""
    cdef const mq_channel_header *header = file.header
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(&file.segment.liveness_file)
    cdef mq_index_ring order
    cdef mq_channel_subscriber_snapshot copy
    cdef uint64_t size = 0, lost = 0
    cdef bint has_order = mq_channel_load_index_ring(header, &order)
    cdef int i
    from msgq.common.stats.endpoint import EndpointCounts  # imported late: few programs read statistics
    for i in range(MQ_CHANNEL_PUBLISHERS):
        if mq_load_acquire_u64(&header.publishers[i].pool_uid):
            size += mq_load_relaxed_u64(&header.publishers[i].bytes)
    for i in range(MQ_CHANNEL_SUBSCRIBERS):
        if mq_load_acquire_u64(&header.subscribers[i].participant.uid):
            mq_channel_snapshot_subscriber(&header.subscribers[i], &copy)
            if has_order and mq_participant_liveness(&probe, &header.subscribers[i].participant,
                                                     MQ_CHANNEL_SUBSCRIBER_BYTE + i) != MQ_DEAD:
                mq_channel_snapshot_count_unread(&order, &copy)
            lost += copy.lost
    mq_liveness_probe_end(&probe)
    return EndpointCounts(mq_index_ring_load_tail(&order) - order.capacity if has_order else 0, size, lost)


cdef dict list_pool_sizes(str name, str in_prefix):
    """Return the bytes of a channel's pools by uid, including pools without a row."""
    sizes = {}
    for channel, uid in list_pools(in_prefix):
        status = read_file_status(shm_paths.pool_path(name, in_prefix, uid)) if channel == name else None
        if status is not None:  # else of another channel, or just removed
            sizes[uid] = status.bytes
    return sizes

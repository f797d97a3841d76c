"""Read a topic's files for msgq.stats: mapped read-only, without a lock or a trace.

See the type stub for the contract.
"""


# msgq.common.stats.topic; imported late, because the import takes as long as the import of sockets
cdef object _stats_module = None


cdef object _read_participant(const mq_participant_snapshot *participant, mq_liveness life):
    cdef bytes name = participant.name
    return _stats_module.Participant(participant.pid, participant.thread_id, participant.start_time,
                                     name.decode(errors="replace"), is_alive(life))


cdef object _lag_bytes(uint64_t position, uint64_t cursor, uint32_t data_bytes):
    cdef uint32_t laps = <uint32_t> (position >> 32) - <uint32_t> (cursor >> 32)
    ahead = <int64_t> <uint32_t> position - <int64_t> <uint32_t> cursor + laps * <int64_t> data_bytes
    return ahead if laps <= 1 and 0 <= ahead <= data_bytes else None


cdef tuple _read_subscribers(TopicFiles topic, mq_ring_side *side, mq_liveness_probe *probe, uint64_t position):
    cdef mq_ring_subscriber_snapshot reader
    cdef mq_ring_subscriber observer = mq_ring_make_observer(<mq_ring_header *> topic.ring.address, side,
                                                             probe.liveness_file, topic.data_bytes, topic.files.canary)
    infos = []
    for i in range(MQ_RING_SUBSCRIBERS):
        mq_ring_observer_read_subscriber(&observer, i, &reader)
        if reader.participant.uid:
            lost = None if reader.lost_unknown else reader.lost
            lag = _lag_bytes(position, reader.cursor, topic.data_bytes)
            owner = _read_participant(&reader.participant, mq_ring_row_liveness(probe, side, MQ_RING_PUBLISHERS + i))
            infos.append(_stats_module.SubscriberInfo(owner, reader.received, lost, reader.resets, lag))
    return tuple(infos)


cdef tuple _read_publisher(const mq_ring_side *side, mq_liveness_probe *probe, uint64_t uid):
    """Return (participant or None, messages, bytes)."""
    cdef mq_participant_snapshot participant
    cdef uint64_t sent = 0, size = 0, sent_most = 0, size_most = 0
    current = None
    for i in range(MQ_RING_PUBLISHERS):
        mq_ring_snapshot_publisher(side, i, &participant, &sent, &size)
        sent_most, size_most = max(sent_most, sent), max(size_most, size)  # a new publisher continues the totals
        if uid and participant.uid == uid:
            current = _read_participant(&participant, mq_ring_row_liveness(probe, side, i))
    return current, sent_most, size_most


cdef object _read_schema(const mq_ring_side *side):
    cdef mq_schema_parts at = mq_ring_side_schema(side)
    return read_schema(&at)


cdef class TopicObserver:
    """One mapped topic for repeated reads. See the type stub for the contract of each method."""

    cdef TopicFiles _topic

    def __init__(self, str endpoint, str in_prefix):
        global _stats_module
        from msgq.common.stats import topic as _stats_module
        self._topic = map_topic(endpoint, in_prefix)
        self._topic.unlock()  # unlock closes the file, which was never locked

    @property
    def endpoint(self):
        return self._topic.endpoint

    cdef mq_ring_side *_side(self):
        """The side segment, or NULL if there is none yet."""
        if self._topic.side is None:
            attach_late_side(self._topic)
        return NULL if self._topic.side is None else <mq_ring_side *> self._topic.side.address

    def is_bridged(self):
        cdef mq_ring_side *side = self._side()
        cdef uint64_t uid = mq_ring_write_uid(<mq_ring_header *> self._topic.ring.address)
        cdef mq_participant_snapshot participant
        cdef uint64_t sent = 0, size = 0
        cdef mq_liveness_probe probe
        cdef bint bridge = False
        for i in range(MQ_RING_PUBLISHERS if side != NULL and uid else 0):
            mq_ring_snapshot_publisher(side, i, &participant, &sent, &size)
            if participant.uid == uid:
                probe = mq_liveness_probe_begin(&self._topic.side.liveness_file)
                bridge = mq_ring_row_liveness(&probe, side, i) != MQ_DEAD
                bridge = bridge and mq_ring_snapshot_is_bridge(side, i, &participant)
                mq_liveness_probe_end(&probe)
                break
        check_topic_truncation(self._topic)
        return bridge

    def counts(self):
        cdef mq_ring_counts now
        cdef mq_ring_side *side = self._side()
        cdef const mq_liveness_file *liveness_file = NULL if side == NULL else &self._topic.side.liveness_file
        mq_ring_snapshot_counts(<mq_ring_header *> self._topic.ring.address, side, liveness_file,
                                self._topic.data_bytes, self._topic.files.canary, &now)
        check_topic_truncation(self._topic)
        position = (now.position >> 32) * self._topic.data_bytes + (now.position & 0xFFFFFFFF)
        if side == NULL:
            return _stats_module.TopicCounts(None, None, position, 0, None)
        lost = None if now.lost_unknown else now.lost
        return _stats_module.TopicCounts(now.messages, now.bytes, position, now.subscribers, lost)

    def stats(self):
        cdef mq_ring_header *ring = <mq_ring_header *> self._topic.ring.address
        cdef mq_ring_side *side = self._side()
        cdef uint64_t position = mq_ring_write_pointer(ring)
        cdef uint64_t uid = mq_ring_write_uid(ring)
        cdef mq_liveness_probe probe
        publisher = messages = size = schema = created = None
        subscribers = ()
        unlisted = tracked = False
        if side != NULL:
            probe = mq_liveness_probe_begin(&self._topic.side.liveness_file)
            try:
                publisher, messages, size = _read_publisher(side, &probe, uid)
                subscribers = _read_subscribers(self._topic, side, &probe, position)
                unlisted = mq_liveness_is_locked(&probe, MQ_RING_ROW_UNREGISTERED) == MQ_ALIVE
            finally:
                mq_liveness_probe_end(&probe)
            schema = _read_schema(side)
            created = mq_ring_side_created_ns(side)
            tracked = bool(mq_ring_side_is_tracked(side))
        stock = mq_ring_count_stock_readers(ring, side)
        check_topic_truncation(self._topic)
        kind = "ours" if publisher is not None else "stock" if uid else "none"
        return _stats_module.TopicStats(self._topic.endpoint, self._topic.ring.path, self._topic.data_bytes, publisher,
                                        kind, messages, size, (position >> 32, position & 0xFFFFFFFF), subscribers,
                                        stock, schema, created, unlisted, tracked)

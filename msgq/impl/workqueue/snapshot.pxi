"""A queue as seen by observers: its file, mapped read-only, without a row or a trace. See core.pyi."""


cdef enum:
    LISTED_PRIORITIES_MAX = 8  # maximum number of listed priorities

_EVENTS_MODE_NAMES = (None, "heads", "payload")  # index: number of the mode in the file


cdef tuple _list_row_waits(mq_queue *queue, unsigned row):
    bits = (("receiving", mq_queue_row_bit_is_set(&queue.sleeping_rows[<int> MQ_QUEUE_RECEIVER], row)),
            ("watching", mq_queue_row_bit_is_set(&queue.sleeping_rows[<int> MQ_QUEUE_WATCHER], row)),
            ("sending", mq_queue_row_bit_is_set(&queue.sleeping_rows[<int> MQ_QUEUE_SENDER], row)),
            ("notified", mq_queue_row_bit_is_set(&queue.notify_requested, row)))
    return tuple([name for name, on in bits if on])


cdef object _list_handle_infos(QueueFile file, const mq_queue_slot_counts *counts):
    """Return the open handles, and rows of dead handles that still have slots or requests."""
    from msgq.common.stats.workqueue import QueueHandleInfo  # imported late: few programs read statistics
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(file.liveness_file())
    cdef mq_queue_row *row
    cdef int i
    handles = []
    try:
        for i in range(MQ_QUEUE_ROWS):
            row = &file.parts.queue.rows[i]
            waits = _list_row_waits(file.parts.queue, i)
            owned = counts.rows[i].filling or counts.rows[i].taken
            if not (mq_load_acquire_u64(&row.at.participant.uid) or waits or owned):
                continue
            life = mq_participant_liveness(&probe, &row.at.participant, MQ_QUEUE_ROW_BYTE + i)
            owner = read_participant(&row.at.participant, life)
            handles.append(QueueHandleInfo(
                owner, i, mq_queue_count_since_join(&row.counts.sent, &row.counts_before.sent),
                mq_queue_count_since_join(&row.counts.received, &row.counts_before.received),
                mq_queue_count_since_join(&row.counts.acknowledged, &row.counts_before.acknowledged),
                mq_queue_count_since_join(&row.counts.returned, &row.counts_before.returned),
                mq_queue_count_since_join(&row.counts.refused, &row.counts_before.refused),
                counts.rows[i].filling, counts.rows[i].taken, waits))
    finally:
        mq_liveness_probe_end(&probe)
    return tuple(handles)


cdef tuple _highest_priorities(const uint32_t *by_priority):
    highest = []
    cdef int priority = MQ_QUEUE_PRIORITIES
    while priority and len(highest) < LISTED_PRIORITIES_MAX:
        priority -= 1
        if by_priority[priority]:
            highest.append((priority, by_priority[priority]))
    return tuple(highest)


cdef dict _sum_counts(mq_queue *queue):
    cdef int i
    totals = dict.fromkeys(("sent", "received", "acknowledged", "returned", "refused", "events_lost"), 0)
    for i in range(MQ_QUEUE_ROWS):
        totals["sent"] += mq_load_relaxed_u64(&queue.rows[i].counts.sent)
        totals["received"] += mq_load_relaxed_u64(&queue.rows[i].counts.received)
        totals["acknowledged"] += mq_load_relaxed_u64(&queue.rows[i].counts.acknowledged)
        totals["returned"] += mq_load_relaxed_u64(&queue.rows[i].counts.returned)
        totals["refused"] += mq_load_relaxed_u64(&queue.rows[i].counts.refused)
        totals["events_lost"] += mq_load_relaxed_u64(&queue.rows[i].events_lost)
    return totals


cdef object _measure_queue_stats(QueueFile file):
    from msgq.common.stats.workqueue import QueueStats  # imported late: few programs read statistics
    cdef mq_queue_slot_counts counts
    cdef uint64_t now = bus_time_ns(file.bus)
    cdef bint has_slots
    with cython.critical_section(file):
        has_slots = file.parts.max_messages != 0 or file.adopt_sizes()
        _memory = file.memory  # during the call, another thread may close the handle
    # without a choice, the sizes that a send would choose
    sizes = (file.parts.max_messages, file.parts.max_message_size) if has_slots else options.DEFAULT_SIZES
    cdef uint32_t *by_priority = <uint32_t *> PyMem_Calloc(MQ_QUEUE_PRIORITIES, sizeof(uint32_t))
    if by_priority == NULL:
        raise MemoryError()
    try:
        with nogil:
            mq_queue_count_all_slots(&file.parts, now, &counts, by_priority)
        priorities = _highest_priorities(by_priority)
    finally:
        PyMem_Free(by_priority)
    stats = QueueStats(
        file.name, shm_paths.strip_bus(file.prefix), file.path, file.segment.size, file.mode, file.creator,
        file.created_ns,
        *sizes, file.schema, counts.ready, counts.taken, counts.delayed,
        counts.filling, counts.free if has_slots else sizes[0], counts.corrupt, counts.lost, counts.oldest or None,
        max(0, <object> now - counts.oldest) if counts.oldest else None, priorities, counts.redelivered,
        counts.most_deliveries, counts.leases, counts.expired_leases, handles=_list_handle_infos(file, &counts),
        events=_EVENTS_MODE_NAMES[file.parts.events], **_sum_counts(file.parts.queue))
    file.check_truncation()
    return stats


cdef class QueueWatch:
    """One mapped queue for repeated reads. See the type stub for the contract of each method."""

    cdef QueueFile _file

    def __init__(self, str name, str in_prefix):
        self._file = open_queue_file(name, in_prefix)

    def counts(self):
        from msgq.common.stats.endpoint import EndpointCounts  # imported late: few programs read statistics
        cdef uint64_t sent = 0, received = 0
        cdef int i
        for i in range(MQ_QUEUE_ROWS):
            sent += mq_load_relaxed_u64(&self._file.parts.queue.rows[i].counts.sent)
            received += mq_load_relaxed_u64(&self._file.parts.queue.rows[i].counts.received)
        self._file.check_truncation()
        return EndpointCounts(sent, None, 0, received)

    def stats(self):
        return _measure_queue_stats(self._file)


def remove_queue(str name, str in_prefix, wanted):
    cdef QueueFile file = open_queue_file(name, in_prefix)

    def remove_events_if_wanted():
        """Return `wanted(...)`.

        First remove the events: while the queue has its name, no process can create it again.
        """
        if not wanted(_measure_queue_stats(file)):
            return False
        remove_events(name, in_prefix)
        return True

    return file.remove_if(remove_events_if_wanted)

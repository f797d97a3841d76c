"""A queue as others see it: its file, mapped read-only, without a row and without a trace. See snapshot.pyi."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint32_t, uint64_t

from msgq.impl.base.clock cimport host_time_ns
from msgq.impl.base.core cimport (
    mq_identity_liveness, mq_liveness_probe_begin, mq_liveness_probe, mq_liveness_probe_end, mq_load_acquire_u64,
    mq_load_relaxed_u64, mq_u64,
)
from msgq.impl.base.endpointfile cimport participant
from msgq.impl.workqueue.core cimport (
    MQ_QUEUE_ROWS, MQ_QUEUE_ROW_BYTE, MQ_RECEIVING, MQ_SENDING, MQ_WATCHING, mq_queue, mq_queue_bit_is_on,
    mq_queue_parts, mq_queue_row,
)
from msgq.impl.workqueue.queuefile cimport QueueFile, queue_file

from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.workqueue import QueueHandleInfo, QueueStats
from msgq.impl.workqueue.removal import remove_events


cdef extern from "workqueue/snapshot.h" nogil:
    enum:
        MQ_QUEUE_PRIORITIES
    ctypedef struct mq_queue_owned:
        uint64_t held, taken
    ctypedef struct mq_queue_census:
        uint64_t free, held, ready, taken, nonsense, astray, redelivered, most_deliveries, leases, overdue, oldest
        mq_queue_owned owned[128]
    void mq_snapshot_places(const mq_queue_parts *parts, uint64_t now_ns, mq_queue_census *out, uint32_t *by_priority)
    uint64_t mq_snapshot_since(const mq_u64 *count, const mq_u64 *before)


cdef enum:
    LISTED = 8  # priorities

_EVENTS = (None, "heads", "payload")  # by the number that the file has


cdef tuple _waits(mq_queue *queue, unsigned row):
    bits = (("receiving", mq_queue_bit_is_on(&queue.asleep[<int> MQ_RECEIVING], row)),
            ("watching", mq_queue_bit_is_on(&queue.asleep[<int> MQ_WATCHING], row)),
            ("sending", mq_queue_bit_is_on(&queue.asleep[<int> MQ_SENDING], row)),
            ("notified", mq_queue_bit_is_on(&queue.notified, row)))
    return tuple([name for name, on in bits if on])


cdef object _handles(QueueFile file, const mq_queue_census *census):
    """Return who has it open, and rows of nobody in which something is left."""
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(file.roll())
    cdef mq_queue_row *row
    cdef int i
    found = []
    try:
        for i in range(MQ_QUEUE_ROWS):
            row = &file.parts.queue.rows[i]
            waits = _waits(file.parts.queue, i)
            if not (mq_load_acquire_u64(&row.at.who.uid) or waits or census.owned[i].held or census.owned[i].taken):
                continue
            who = participant(&row.at.who, mq_identity_liveness(&inquiry, &row.at.who, MQ_QUEUE_ROW_BYTE + i))
            found.append(QueueHandleInfo(
                who, i, mq_snapshot_since(&row.counts.sent, &row.before.sent),
                mq_snapshot_since(&row.counts.received, &row.before.received),
                mq_snapshot_since(&row.counts.acknowledged, &row.before.acknowledged),
                mq_snapshot_since(&row.counts.returned, &row.before.returned),
                mq_snapshot_since(&row.counts.refused, &row.before.refused),
                census.owned[i].held, census.owned[i].taken, waits))
    finally:
        mq_liveness_probe_end(&inquiry)
    return tuple(found)


cdef tuple _highest(const uint32_t *by_priority):
    found = []
    cdef int priority = MQ_QUEUE_PRIORITIES
    while priority and len(found) < LISTED:
        priority -= 1
        if by_priority[priority]:
            found.append((priority, by_priority[priority]))
    return tuple(found)


cdef dict _totals(mq_queue *queue):
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


cdef object _look(QueueFile file):
    cdef mq_queue_census census
    cdef uint64_t now = host_time_ns()
    cdef uint32_t *by_priority = <uint32_t *> PyMem_Calloc(MQ_QUEUE_PRIORITIES, sizeof(uint32_t))
    if by_priority == NULL:
        raise MemoryError()
    try:
        with nogil:
            mq_snapshot_places(&file.parts, now, &census, by_priority)
        priorities = _highest(by_priority)
    finally:
        PyMem_Free(by_priority)
    stats = QueueStats(
        file.name, file.prefix, file.path, file.segment.size, file.mode, file.creator, file.created_ns,
        file.parts.max_messages, file.parts.max_message_size, file.schema, census.ready, census.taken, census.held,
        census.free, census.nonsense, census.astray, census.oldest or None,
        max(0, <object> now - census.oldest) if census.oldest else None, priorities, census.redelivered,
        census.most_deliveries, census.leases, census.overdue, handles=_handles(file, &census),
        events=_EVENTS[file.parts.events], **_totals(file.parts.queue))
    file.check_whole()
    return stats


cdef QueueFile _found(str name, str in_prefix):
    file = queue_file(name, in_prefix, None, None)
    if not file.open(False):
        raise file.missing()
    return file


cdef class QueueWatch:
    """One queue, kept mapped, to be looked at again and again. See the type stub for the contract of each method."""

    cdef QueueFile _file

    def __init__(self, str name, str in_prefix):
        self._file = _found(name, in_prefix)

    def counts(self):
        cdef uint64_t sent = 0, received = 0
        cdef int i
        for i in range(MQ_QUEUE_ROWS):
            sent += mq_load_relaxed_u64(&self._file.parts.queue.rows[i].counts.sent)
            received += mq_load_relaxed_u64(&self._file.parts.queue.rows[i].counts.received)
        self._file.check_whole()
        return EndpointCounts(sent, None, 0, received)

    def stats(self):
        return _look(self._file)


def remove_queue(str name, str in_prefix, wanted):
    cdef QueueFile file = _found(name, in_prefix)

    def leaves():
        """Say whether it is to go; its events go first, for as long as it has its name nobody can make it anew."""
        if not wanted(_look(file)):
            return False
        remove_events(name, in_prefix)
        return True

    return file.remove_if(leaves)

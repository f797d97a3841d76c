"""A vector or board as others see it: its file, mapped read-only, without a row or a trace. See snapshot.pyi."""

from libc.stdint cimport uint64_t

from msgq.impl.base.clock cimport host_time_ns
from msgq.impl.base.core cimport (
    mq_eventcount_has_waiters_mp, mq_copy_out, mq_identity_liveness, mq_liveness_probe_begin, mq_liveness_probe,
    mq_liveness_probe_end, mq_load_acquire_u64, mq_load_relaxed_u64,
)
from msgq.impl.base.endpointfile cimport participant
from msgq.impl.records.core cimport (
    MQ_RECORD_EXCLUSIVE, MQ_RECORD_KEY, MQ_RECORD_ROWS, MQ_RECORD_ROW_BYTE, mq_board_keys, mq_board_look,
    mq_board_stands, mq_board_value, mq_board_value_bytes, mq_record, mq_record_parts, mq_record_row,
)
from msgq.impl.records.recordfile cimport RecordFile, record_file

from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo


cdef extern from "records/snapshot.h" nogil:
    enum:
        MQ_RECORD_LOOKS
    ctypedef struct mq_record_owned:
        uint64_t held, keys
    ctypedef struct mq_record_census:
        uint64_t ever, held, astray, last, newest
        mq_record_owned owned[128]
    unsigned mq_record_named(const mq_record *record, uint64_t who)
    void mq_record_look(const mq_record_parts *parts, mq_record_census *out)


cdef enum:
    LISTED = 256  # keys


cdef uint64_t _written(RecordFile file) noexcept:
    """Elements that were written so far, by all rows."""
    cdef uint64_t written = 0
    cdef int row
    for row in range(MQ_RECORD_ROWS):
        written += mq_load_relaxed_u64(&file.parts.record.rows[row].written)
    return written


cdef dict _writers(RecordFile file, const mq_record_census *census):
    """Return who writes, and rows of nobody in which something is left, by row."""
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(file.roll())
    cdef mq_record_row *row
    cdef int i
    found = {}
    try:
        for i in range(MQ_RECORD_ROWS):
            row = &file.parts.record.rows[i]
            if mq_load_acquire_u64(&row.at.who.uid) or census.owned[i].held or census.owned[i].keys:
                who = participant(&row.at.who, mq_identity_liveness(&inquiry, &row.at.who, MQ_RECORD_ROW_BYTE + i))
                found[i] = RecordWriterInfo(who, i, mq_load_relaxed_u64(&row.written), census.owned[i].held,
                                            census.owned[i].keys)
    finally:
        mq_liveness_probe_end(&inquiry)
    return found


cdef bint _steady(RecordFile file, uint64_t index, mq_board_value *value):
    """Look at a value; False: it changed all the time, or has a length that none can have."""
    cdef int _again
    for _again in range(MQ_RECORD_LOOKS):
        mq_board_look(&file.parts, index, value)
        if mq_board_stands(&file.parts, index, value):
            return value.times != 0 and not value.nonsense
    return False


cdef object _key(RecordFile file, uint64_t index, dict writers, uint64_t now):
    cdef mq_board_value value
    cdef char name[MQ_RECORD_KEY]
    cdef uint64_t who = mq_load_acquire_u64(&file.parts.keys[index].owner)
    mq_copy_out(name, file.parts.keys[index].name, sizeof(name))
    key = name[:sizeof(name)].partition(b"\0")[0].decode(errors="replace")
    writer = writers.get(mq_record_named(file.parts.record, who)) if who else None
    owner = writer and writer.participant
    if not _steady(file, index, &value):
        return RecordKeyInfo(key, owner, value.times)
    return RecordKeyInfo(key, owner, value.times, value.length, value.written, max(0, <object> now - value.written))


cdef object _look(RecordFile file):
    cdef mq_record_census census
    cdef mq_record *record = file.parts.record
    cdef bint board = file.is_board()
    cdef uint64_t now = host_time_ns(), key_count, i
    with nogil:
        mq_record_look(&file.parts, &census)
    writers = _writers(file, &census)
    key_count = mq_board_keys(&file.parts) if board else 0
    keys = tuple([_key(file, i, writers, now) for i in range(min(key_count, <uint64_t> LISTED))])
    dead = sum([one.holds for one in writers.values() if one.participant.alive is False])
    stats = RecordStats(
        file.name, file.prefix, file.path, file.segment.size, file.mode, "board" if board else "vector", file.creator,
        file.created_ns, file.parts.shape.length,
        mq_board_value_bytes(&file.parts) if board else file.parts.shape.item_bytes, file.parts.shape.copies,
        bool(file.parts.shape.flags & MQ_RECORD_EXCLUSIVE), file.schema,
        _written(file), census.ever, census.held, census.astray + dead, census.last or None,
        max(0, <object> now - census.last) if census.last else None,
        census.newest if census.last else None, mq_eventcount_has_waiters_mp(&record.attention), key_count, keys,
        tuple(writers.values()))
    file.check_whole()
    return stats


cdef RecordFile _found(str name, str in_prefix):
    file = record_file(name, in_prefix, None, None)
    if not file.open(False):
        raise file.missing()
    return file


cdef class RecordWatch:
    """One vector or board, kept mapped, to be looked at again and again. See the type stub for the contract."""

    cdef RecordFile _file
    cdef object _item_bytes         # of a vector; the values of a board have sizes of their own

    def __init__(self, str name, str in_prefix):
        self._file = _found(name, in_prefix)
        self._item_bytes = None if self._file.is_board() else self._file.parts.shape.item_bytes

    def counts(self):
        written = _written(self._file)
        self._file.check_whole()
        return EndpointCounts(written, None if self._item_bytes is None else written * self._item_bytes, None)

    def stats(self):
        return _look(self._file)


def remove_record(str name, str in_prefix, wanted):
    cdef RecordFile file = _found(name, in_prefix)
    return file.remove_if(lambda: wanted(_look(file)))

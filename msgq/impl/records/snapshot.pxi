"""A vector or board as seen by observers: its file, mapped read-only, without a row or a trace. See core.pyi."""


cdef enum:
    SHOWN_KEYS_MAX = 256  # maximum number of keys in stats


cdef uint64_t _count_written_elements(RecordFile file) noexcept:
    """Return the number of elements written by all rows."""
    cdef uint64_t written = 0
    cdef int row
    for row in range(MQ_RECORD_ROWS):
        written += mq_load_relaxed_u64(&file.parts.header.rows[row].written)
    return written


cdef dict _read_writers(RecordFile file, const mq_record_summary *summary):
    """Return the writers by row, and rows without an owner that still hold elements or keys."""
    cdef mq_liveness_probe probe = mq_liveness_probe_begin(file.liveness_file())
    cdef mq_record_row *row
    cdef int i
    from msgq.common.stats.records import RecordWriterInfo  # imported late: few programs read statistics
    writers = {}
    try:
        for i in range(MQ_RECORD_ROWS):
            row = &file.parts.header.rows[i]
            if mq_load_acquire_u64(&row.at.participant.uid) or summary.rows[i].locked or summary.rows[i].keys:
                owner = read_participant(&row.at.participant, mq_participant_liveness(&probe, &row.at.participant,
                                                                                      MQ_RECORD_ROW_BYTE + i))
                writers[i] = RecordWriterInfo(owner, i, mq_load_relaxed_u64(&row.written), summary.rows[i].locked,
                                              summary.rows[i].keys)
    finally:
        mq_liveness_probe_end(&probe)
    return writers


cdef bint _read_value_info(RecordFile file, uint64_t index, mq_board_value_copy *value):
    """Read the length and time of a value.

    Return False if it changed during every attempt, or its length is invalid.
    """
    cdef int _again
    for _again in range(MQ_RECORD_READ_TRIES):
        mq_board_value_read_begin(&file.parts, index, value)
        if mq_board_value_read_valid(&file.parts, index, value):
            return value.count != 0 and not value.is_corrupt
    return False


cdef object _read_key_info(RecordFile file, uint64_t index, dict writers, uint64_t now):
    cdef mq_board_value_copy value
    cdef char name[MQ_RECORD_KEY_BYTES]
    cdef uint64_t owner_word = mq_load_acquire_u64(&file.parts.key_table[index].owner)
    from msgq.common.stats.records import RecordKeyInfo  # imported late: few programs read statistics
    mq_copy_from_shared(name, file.parts.key_table[index].name, sizeof(name))
    key = name[:sizeof(name)].partition(b"\0")[0].decode(errors="replace")
    writer = writers.get(mq_record_find_owner_row(file.parts.header, owner_word)) if owner_word else None
    owner = writer and writer.participant
    if not _read_value_info(file, index, &value):
        return RecordKeyInfo(key, owner, value.count)
    return RecordKeyInfo(key, owner, value.count, value.length, value.time_ns, max(0, <object> now - value.time_ns))


cdef object _read_record_stats(RecordFile file):
    cdef mq_record_summary summary
    cdef mq_record_header *header = file.parts.header
    cdef bint is_board = file.is_board()
    cdef uint64_t now = bus_time_ns(file.bus), key_count, i
    from msgq.common.stats.records import RecordStats  # imported late: few programs read statistics
    with nogil:
        mq_record_summarize_file(&file.parts, &summary)
    writers = _read_writers(file, &summary)
    key_count = mq_board_key_count(&file.parts) if is_board else 0
    keys = tuple([_read_key_info(file, i, writers, now) for i in range(min(key_count, <uint64_t> SHOWN_KEYS_MAX))])
    locked_by_dead = sum([each.locked for each in writers.values() if each.participant.alive is False])
    stats = RecordStats(
        file.name, shm_paths.strip_bus(file.prefix), file.path, file.segment.size, file.mode, "board" if is_board else
        "vector",
        file.creator, file.created_ns, file.parts.config.length,
        mq_board_value_bytes(&file.parts) if is_board else file.parts.config.item_bytes, file.parts.config.copies,
        bool(file.parts.config.flags & MQ_RECORD_EXCLUSIVE), file.schema,
        _count_written_elements(file), summary.elements_written, summary.locked, summary.orphaned + locked_by_dead,
        summary.last_time_ns or None,
        max(0, <object> now - summary.last_time_ns) if summary.last_time_ns else None,
        summary.last_index if summary.last_time_ns else None, mq_eventcount_has_waiters_mp(&header.eventcount),
        key_count, keys,
        tuple(writers.values()))
    file.check_truncation()
    return stats


cdef class RecordStatsReader:
    """One mapped vector or board for repeated reads. See the type stub for the contract."""

    cdef RecordFile _file
    cdef object _item_bytes  # item bytes of a vector; values of a board have different sizes

    def __init__(self, str name, str in_prefix):
        self._file = open_record_file(name, in_prefix)
        self._item_bytes = None if self._file.is_board() else self._file.parts.config.item_bytes

    def counts(self):
        from msgq.common.stats.endpoint import EndpointCounts  # imported late: few programs read statistics
        written = _count_written_elements(self._file)
        self._file.check_truncation()
        return EndpointCounts(written, None if self._item_bytes is None else written * self._item_bytes, None)

    def stats(self):
        return _read_record_stats(self._file)


def remove_record(str name, str in_prefix, wanted):
    cdef RecordFile file = open_record_file(name, in_prefix)
    return file.remove_if(lambda: wanted(_read_record_stats(file)))

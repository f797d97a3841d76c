"""Counts writes of a vector or board, by reads of its file. See core.pyi."""


cdef class RecordsMeter(EndpointMeter):
    """See core.pyi."""

    cdef RecordFile _file  # None: closed
    cdef mq_meter_record_reader _records

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.RECORDS_NAME_PREFIX + name
        cdef RecordFile file = make_record_file(name, in_prefix, None, None)
        if not file.open(False):
            raise file.missing_error()
        self._records.parts, self._records.is_board = &file.parts, file.is_board()
        self._records.seen_write_counts = <uint64_t *> calloc(file.parts.config.length, sizeof(uint64_t))
        if self._records.seen_write_counts == NULL:
            raise MemoryError()
        mq_meter_start_records(&self._records)
        self._file = file
        self.c.reader, self.c.sample = &self._records, mq_meter_sample_records

    def __dealloc__(self):
        free(self._records.seen_write_counts)

    def close(self):
        self._file = None

    cdef int _begin_sampling(self) except -1:
        if self._file is None:
            raise EndpointClosedError("meter is closed", self.endpoint)
        return self._file.check_truncation()

    cdef object _count_lost(self):
        return self._records.lost

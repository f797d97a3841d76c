"""Counts what is written in a vector or board, by looks at its file. See core.pyi."""


cdef class RecordsMeter(Meter):
    """See core.pyi."""

    cdef RecordFile _file  # None: closed
    cdef mq_meter_records _records

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.RECORDS_NAME_PREFIX + name
        cdef RecordFile file = make_record_file(name, in_prefix, None, None)
        if not file.open(False):
            raise file.missing_error()
        self._records.parts, self._records.board = &file.parts, file.is_board()
        self._records.seen = <uint64_t *> calloc(file.parts.config.length, sizeof(uint64_t))
        if self._records.seen == NULL:
            raise MemoryError()
        mq_meter_records_begin(&self._records)
        self._file = file
        self.c.reader, self.c.sample = &self._records, mq_meter_records_sample

    def __dealloc__(self):
        free(self._records.seen)

    def close(self):
        self._file = None

    cdef int _begin(self) except -1:
        if self._file is None:
            raise EndpointClosedError("the meter was closed", self.endpoint)
        return self._file.check_truncation()

    cdef object _lost(self):
        return self._records.lost

"""Chunks of messages as columns, in compiled code. See scan.h."""


cdef extern from "mcap_io/scan.h" nogil:
    enum:
        MQ_SCAN_END_OF_BYTES
        MQ_SCAN_COLUMNS_FULL
        MQ_SCAN_OTHER_RECORD
        MQ_SCAN_TRUNCATED_RECORD
        MQ_SCAN_ZERO_OPCODE
        MQ_CHANNEL_CODE_UNKNOWN
        MQ_CHANNEL_CODE_UNWANTED
    ctypedef struct mq_scan_filter:
        const int32_t *channel_codes
        int64_t channel_count
        int64_t start_time
        int64_t end_time
        int stops_at_unknown
    ctypedef struct mq_scan_columns:
        int32_t *code
        int64_t *sequence
        int64_t *log_time
        int64_t *publish_time
        int64_t *offset
        int64_t *length
    int mq_scan_chunk_messages(const uint8_t *data, int64_t size, const mq_scan_filter *wanted,
                               const mq_scan_columns *columns, int64_t rows, int64_t *position, int64_t *row)
    int64_t mq_scan_sum_payload_bytes(const mq_scan_columns *columns, int64_t row, int64_t rows)
    int64_t mq_scan_copy_payloads(const uint8_t *data, int64_t size, const mq_scan_columns *columns, int64_t row,
                                  int64_t rows, uint8_t *into, int64_t used, int32_t *ends)
    void mq_scan_update_tallies(const mq_scan_columns *columns, int64_t row, int64_t rows, mq_channel_tally *tallies,
                                const int32_t *numberings)

cdef extern from "mcap_io/crc.h" nogil:
    bint mq_crc_is_fold_supported()
    void mq_crc_fold_bytes(const uint8_t *data, int64_t size, uint32_t start, uint8_t *folded)
    uint32_t mq_crc_combine(uint32_t first, uint32_t second, uint64_t second_size)


SCAN_END_OF_BYTES = MQ_SCAN_END_OF_BYTES
SCAN_COLUMNS_FULL = MQ_SCAN_COLUMNS_FULL
SCAN_OTHER_RECORD = MQ_SCAN_OTHER_RECORD
SCAN_TRUNCATED_RECORD = MQ_SCAN_TRUNCATED_RECORD
SCAN_ZERO_OPCODE = MQ_SCAN_ZERO_OPCODE
CHANNEL_CODE_UNKNOWN = MQ_CHANNEL_CODE_UNKNOWN
CHANNEL_CODE_UNWANTED = MQ_CHANNEL_CODE_UNWANTED
TIME_MAX = 2**63 - 1


@cache
def tally_dtype():
    import numpy as np  # imported late: the summary of a file needs no array

    return np.dtype([(name, "i8") for name in ChannelTally.__slots__])


cdef class ScanColumns:
    """See the type stub (core.pyi)."""

    cdef readonly object channel_code
    cdef readonly object sequence
    cdef readonly object log_time
    cdef readonly object publish_time
    cdef readonly object offset
    cdef readonly object length
    cdef readonly object origin_time
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t row_count
    cdef mq_scan_columns _columns

    def __cinit__(self, Py_ssize_t capacity):
        if capacity < 1:
            raise InvalidValueError(f"capacity of {capacity} rows is too small; use 1 or more")
        import numpy as np

        self.capacity = capacity
        self.channel_code = np.empty(capacity, np.int32)
        cdef int32_t[::1] code = self.channel_code
        self._columns.code = &code[0]
        self.sequence = np.empty(capacity, np.int64)
        self._columns.sequence = _address(self.sequence)
        self.log_time = np.empty(capacity, np.int64)
        self._columns.log_time = _address(self.log_time)
        self.publish_time = np.empty(capacity, np.int64)
        self._columns.publish_time = _address(self.publish_time)
        self.offset = np.empty(capacity, np.int64)
        self._columns.offset = _address(self.offset)
        self.length = np.empty(capacity, np.int64)
        self._columns.length = _address(self.length)
        self.origin_time = np.zeros(capacity, np.int64)  # scans leave this at 0; see McapFile.scan_block_messages

    def clear_rows(self):
        self.row_count = 0

    def scan_messages(self, const uint8_t[::1] data, int64_t position, const int32_t[::1] codes, int64_t start,
                      int64_t end, bint strict=False):
        cdef mq_scan_filter wanted
        cdef int64_t size = data.shape[0]
        cdef int64_t row = self.row_count
        cdef int why
        if not 0 <= position <= size:
            raise InvalidValueError(f"position {position} is outside of the {size} bytes")
        if size == 0:
            return MQ_SCAN_END_OF_BYTES, 0
        wanted.channel_count, wanted.stops_at_unknown = codes.shape[0], strict
        wanted.start_time, wanted.end_time = start, end
        wanted.channel_codes = &codes[0] if wanted.channel_count else NULL
        with nogil:
            why = mq_scan_chunk_messages(&data[0], size, &wanted, &self._columns, self.capacity, &position, &row)
        self.row_count = row
        return why, position

    def count_payload_bytes(self, Py_ssize_t first):
        self._check(first)
        return mq_scan_sum_payload_bytes(&self._columns, first, self.row_count)

    def copy_payloads(self, const uint8_t[::1] data, Py_ssize_t first, uint8_t[::1] into, int64_t used,
                      int32_t[::1] ends):
        self._check(first)
        cdef int64_t size = mq_scan_sum_payload_bytes(&self._columns, first, self.row_count)
        if used < 0 or size > into.shape[0] - used or ends.shape[0] < self.row_count or used + size > 2**31 - 1:
            raise InvalidValueError(
                f"{size} bytes do not fit into the buffer: "
                f"{used} of {into.shape[0]} bytes are in use"
            )
        if size == 0:
            ends[first:self.row_count] = <int32_t> used
            return used
        with nogil:
            used = mq_scan_copy_payloads(&data[0], data.shape[0], &self._columns, first, self.row_count, &into[0], used,
                                         &ends[0])
        if used < 0:
            raise InvalidValueError(f"data of {data.shape[0]} bytes differ from the scanned data; pass the same bytes")
        return used

    def keep_rows(self, Py_ssize_t first, mask not None):
        import numpy as np

        self._check(first)
        rows = first + np.count_nonzero(mask)
        if rows < self.row_count:
            for column in (self.channel_code, self.sequence, self.log_time, self.publish_time, self.offset, self.length,
                           self.origin_time):
                column[first:rows] = column[first:self.row_count][mask]
        self.row_count = rows

    def update_tallies(self, tallies, Py_ssize_t first, const int32_t[::1] numberings not None):
        self._check(first)
        if first == self.row_count:
            return
        codes = min(len(tallies), numberings.shape[0])
        if tallies.dtype != tally_dtype() or self.channel_code[first:self.row_count].max() >= codes:
            raise InvalidValueError(f"tallies has {codes} elements, too few for the channel codes")
        for each in numberings:
            if not 0 <= each < len(tallies):
                raise InvalidValueError(f"numbering {each} is out of range for {len(tallies)} tallies")
        cdef int64_t[::1] numbers = tallies.view("i8")
        with nogil:
            mq_scan_update_tallies(&self._columns, first, self.row_count, <mq_channel_tally *> &numbers[0],
                                   &numberings[0])

    cdef int _check(self, Py_ssize_t first) except -1:
        if not 0 <= first <= self.row_count:
            raise InvalidValueError(f"row {first} is out of range for {self.row_count} rows")
        return 0


def crc32(const uint8_t[::1] data, uint32_t start=0):
    cdef int64_t size = data.shape[0] & ~63
    cdef uint8_t folded[16]
    if size == 0 or not mq_crc_is_fold_supported():
        return zlib.crc32(data, start)
    with nogil:
        mq_crc_fold_bytes(&data[0], size, start, folded)
    return zlib.crc32(data[size:], zlib.crc32(folded[:16], 0xFFFFFFFF))  # zlib calls the state 0 0xFFFFFFFF


def combine_crc32(uint32_t first, uint32_t second, uint64_t second_bytes):
    return mq_crc_combine(first, second, second_bytes)


cdef int64_t *_address(object column):
    cdef int64_t[::1] view = column
    return &view[0]

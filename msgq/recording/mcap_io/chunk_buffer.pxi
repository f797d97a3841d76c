"""Chunks that are being filled: the Python side of chunk_buffer.h."""


RECORD_HEADER = MQ_LOG_MESSAGE_HEADER
ENTRY = [("log_time", "<u8"), ("offset", "<u8"), ("channel", "<u4"), ("sequence", "<u4"), ("origin_time", "<i8")]

ROW_DTYPE = np.dtype([("log_time", "<i8"), ("publish_time", "<i8"), ("origin_time", "<i8"), ("offset", "<i8"),
                      ("length", "<i8"), ("sequence", "<u4"), ("channel", "<u2"), ("content", "<u2")])
CHANNEL_IDS = MQ_LOG_CHANNEL_IDS

cdef enum:
    SMALLEST_RECORD = 48  # entries for so many bytes of room each: a chunk of tiny messages may close early


cdef class _Bytes:
    """Some bytes of a chunk, as a buffer that keeps the chunk."""

    cdef ChunkBuffer _chunk
    cdef void *_start
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, True, flags)


cdef object _view(ChunkBuffer chunk, void *start, Py_ssize_t size):
    cdef _Bytes view = _Bytes.__new__(_Bytes)
    view._chunk, view._start, view._size = chunk, start, size
    return memoryview(view)


cdef void *_zeros(size_t size) except NULL:
    """Return memory for something of each id that a channel can have; what is not written costs nothing."""
    cdef void *zeros = calloc(MQ_LOG_CHANNEL_IDS, size)
    if zeros == NULL:
        raise MemoryError(f"no memory for {MQ_LOG_CHANNEL_IDS} channels")
    return zeros


cdef class ChunkBuffer:
    """See core.pyi."""

    def __cinit__(self, uint64_t enough, uint64_t largest):
        cdef uint64_t room = enough + largest + MQ_LOG_MESSAGE_HEADER
        memset(&self._chunk, 0, sizeof(self._chunk))
        self._chunk.room, self._chunk.enough = room, enough
        self._chunk.entries_room = <uint32_t> min(enough // SMALLEST_RECORD + 1, <uint64_t> (1 << 24))
        self._chunk.bytes = <uint8_t *> malloc(room)
        self._chunk.entries = <mq_log_entry *> malloc(self._chunk.entries_room * sizeof(mq_log_entry))
        if self._chunk.bytes == NULL or self._chunk.entries == NULL:
            raise MemoryError(f"no memory for a chunk of {room} bytes")

    def __dealloc__(self):
        free(self._chunk.bytes)
        free(self._chunk.entries)

    @property
    def room(self):
        return self._chunk.room

    @property
    def used(self):
        return self._chunk.used

    def __len__(self):
        return self._chunk.entries_used

    @property
    def data(self):
        return _view(self, self._chunk.bytes, self._chunk.used)

    @property
    def entries(self):
        return _view(self, self._chunk.entries, self._chunk.entries_used * sizeof(mq_log_entry))

    def append(self, uint16_t channel, uint32_t sequence, uint64_t log_time, uint64_t publish_time,
               const unsigned char[::1] data not None, int64_t origin_time=0):
        cdef const void *start = &data[0] if data.shape[0] else NULL
        return mq_log_chunk_append(&self._chunk, channel, sequence, log_time, publish_time, origin_time, start,
                                   data.shape[0])

    def append_rows(self, rows not None, int64_t start, contents not None):
        cdef Py_ssize_t count = len(contents)
        cdef const uint8_t[::1] data
        cdef const uint8_t[::1] one
        cdef mq_log_content *places
        cdef int64_t size = len(rows)
        cdef Py_ssize_t i
        if rows.dtype != ROW_DTYPE or not 0 <= start <= size:
            raise InvalidValueError(f"row {start} of {size} rows of {rows.dtype}; they must be of dtype ROW_DTYPE")
        if start == size:
            return start
        data = rows.view(np.uint8)
        places = <mq_log_content *> malloc(max(count, 1) * sizeof(mq_log_content))
        if places == NULL:
            raise MemoryError(f"no memory for {count} places")
        try:
            for i in range(count):
                one = contents[i]
                places[i].size = one.shape[0]
                places[i].bytes = &one[0] if one.shape[0] else NULL
            with nogil:
                start = mq_log_chunk_append_rows(&self._chunk, <const mq_log_row *> &data[0], start, size, places,
                                                 count)
        finally:
            free(places)
        if start < 0:
            raise InvalidValueError("a row does not lie in its content")
        return start

    def count(self, tallies not None, const uint16_t[::1] numberings not None):
        if tallies.dtype != TALLY_DTYPE or not len(tallies) == numberings.shape[0] == CHANNEL_IDS:
            raise InvalidValueError(f"{len(tallies)} tallies; give one for each of {CHANNEL_IDS} ids")
        cdef int64_t[::1] numbers = tallies.view(np.int64)
        with nogil:
            mq_log_chunk_update_tallies(&self._chunk, <mq_tally *> &numbers[0], &numberings[0])

    def count_by_channel(self):
        cdef uint32_t *counts = <uint32_t *> _zeros(sizeof(uint32_t))
        cdef uint32_t channel
        try:
            behind = mq_log_chunk_count_by_channel(&self._chunk, counts)
            return {channel: counts[channel] for channel in range(behind) if counts[channel]}
        finally:
            free(counts)

    def build_index(self, uint64_t shift):
        cdef uint8_t **places = <uint8_t **> _zeros(sizeof(uint8_t *))
        cdef uint8_t *to
        cdef uint16_t channel
        cdef uint32_t count
        try:
            counts = self.count_by_channel()
            size = len(counts) * MQ_LOG_INDEX_HEADER + self._chunk.entries_used * <Py_ssize_t> MQ_LOG_INDEX_ENTRY
            records = PyBytes_FromStringAndSize(NULL, size)
            to = <uint8_t *> PyBytes_AS_STRING(records)
            for channel, count in counts.items():
                places[channel] = mq_log_index_write_header(to, channel, count)
                to = places[channel] + count * <uint64_t> MQ_LOG_INDEX_ENTRY
            mq_log_chunk_write_index(&self._chunk, shift, places)
            return records
        finally:
            free(places)

    def clear(self):
        self._chunk.used = self._chunk.entries_used = 0

"""Chunks during their filling: the Python side of chunk_buffer.h."""


MESSAGE_RECORD_HEADER_BYTES = MQ_LOG_MESSAGE_HEADER_BYTES
CHUNK_ENTRY_FIELDS = [("log_time", "<u8"), ("offset", "<u8"), ("channel", "<u4"), ("sequence", "<u4"),
                      ("origin_time", "<i8")]
CHANNEL_ID_COUNT = MQ_LOG_CHANNEL_ID_COUNT


@cache
def message_row_dtype():
    import numpy as np

    return np.dtype([("log_time", "<i8"), ("publish_time", "<i8"), ("origin_time", "<i8"), ("offset", "<i8"),
                     ("length", "<i8"), ("sequence", "<u4"), ("channel", "<u2"), ("content_index", "<u2")])


cdef enum:
    PREFIX_CAPACITY_BYTES = 1 << 16  # room for channels before the first record: unused pages take no memory
    SMALLEST_RECORD_BYTES = 48  # one entry for each 48 bytes of a chunk: a chunk of tiny messages may close early


cdef class _ChunkBytesView:
    """Bytes of a chunk, as a buffer that keeps the chunk."""

    cdef ChunkBuffer _chunk
    cdef void *_start
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, True, flags)


cdef object _make_bytes_view(ChunkBuffer chunk, void *start, Py_ssize_t size):
    cdef _ChunkBytesView view = _ChunkBytesView.__new__(_ChunkBytesView)
    view._chunk, view._start, view._size = chunk, start, size
    return memoryview(view)


cdef void *_allocate_per_channel(size_t size) except NULL:
    """Return zeroed memory for all possible ids of channels. Unwritten pages take no memory."""
    cdef void *zeros = calloc(MQ_LOG_CHANNEL_ID_COUNT, size)
    if zeros == NULL:
        raise MemoryError(f"no memory for {MQ_LOG_CHANNEL_ID_COUNT} channels")
    return zeros


cdef dict _count_messages(const mq_log_chunk *chunk):
    """Return the number of messages by channel id."""
    cdef uint32_t *counts = <uint32_t *> _allocate_per_channel(sizeof(uint32_t))
    cdef uint32_t channel
    try:
        channel_limit = mq_log_chunk_count_by_channel(chunk, counts)
        return {channel: counts[channel] for channel in range(channel_limit) if counts[channel]}
    finally:
        free(counts)


cdef uint8_t *_allocate_records(uint64_t capacity_bytes) except NULL:
    """Return memory for records, with room for a prefix before them."""
    cdef uint8_t *start = <uint8_t *> malloc(PREFIX_CAPACITY_BYTES + capacity_bytes)
    if start == NULL:
        raise MemoryError(f"no memory for a chunk of {capacity_bytes} bytes")
    return start + PREFIX_CAPACITY_BYTES


cdef class ChunkBuffer:
    """See core.pyi."""

    def __cinit__(self, uint64_t target_bytes, uint64_t largest_bytes):
        cdef uint64_t capacity_bytes = target_bytes + largest_bytes + MQ_LOG_MESSAGE_HEADER_BYTES
        memset(&self._chunk, 0, sizeof(self._chunk))
        self._chunk.capacity_bytes, self._chunk.target_bytes = capacity_bytes, target_bytes
        self._chunk.entry_capacity = <uint32_t> min(target_bytes // SMALLEST_RECORD_BYTES + 1, <uint64_t> (1 << 24))
        self._chunk.buffer = _allocate_records(capacity_bytes)
        self._chunk.entries = <mq_log_chunk_entry *> malloc(self._chunk.entry_capacity * sizeof(mq_log_chunk_entry))
        if self._chunk.entries == NULL:
            raise MemoryError(f"no memory for a chunk of {capacity_bytes} bytes")

    def __dealloc__(self):
        if self._chunk.buffer != NULL:
            free(self._chunk.buffer - PREFIX_CAPACITY_BYTES)
        free(self._chunk.entries)

    @property
    def capacity_bytes(self):
        return self._chunk.capacity_bytes

    @property
    def used_bytes(self):
        return self._chunk.used_bytes

    def __len__(self):
        return self._chunk.entry_count

    @property
    def first_time(self):
        return self._chunk.first_time

    @property
    def last_time(self):
        return self._chunk.last_time

    @property
    def has_origins(self):
        return self._chunk.has_origins

    @property
    def record_bytes(self):
        return _make_bytes_view(self, self._chunk.buffer, self._chunk.used_bytes)

    def prepend_records(self, bytes start not None):
        cdef Py_ssize_t size = len(start)
        if size > PREFIX_CAPACITY_BYTES:
            return memoryview(b"".join((start, self.record_bytes)))
        memcpy(self._chunk.buffer - size, PyBytes_AS_STRING(start), size)
        return _make_bytes_view(self, self._chunk.buffer - size, size + self._chunk.used_bytes)

    @property
    def message_entries(self):
        return _make_bytes_view(self, self._chunk.entries, self._chunk.entry_count * sizeof(mq_log_chunk_entry))

    def append_message(self, uint16_t channel, uint32_t sequence, uint64_t log_time, uint64_t publish_time,
                       const unsigned char[::1] data not None, int64_t origin_time=0):
        cdef const void *start = &data[0] if data.shape[0] else NULL
        return mq_log_chunk_append_message(&self._chunk, channel, sequence, log_time, publish_time, origin_time, start,
                                           data.shape[0])

    def append_rows(self, rows not None, int64_t start, contents not None):
        cdef Py_ssize_t count = len(contents)
        cdef const uint8_t[::1] data
        cdef const uint8_t[::1] data_view
        cdef mq_log_payload_buffer *places
        cdef int64_t size = len(rows)
        cdef Py_ssize_t i
        if rows.dtype != message_row_dtype() or not 0 <= start <= size:
            raise InvalidValueError(
                f"start {start} is outside of {size} rows, or their dtype {rows.dtype} is not message_row_dtype()")
        if start == size:
            return start
        data = rows.view("u1")
        places = <mq_log_payload_buffer *> malloc(max(count, 1) * sizeof(mq_log_payload_buffer))
        if places == NULL:
            raise MemoryError(f"no memory for {count} slots")
        try:
            for i in range(count):
                data_view = contents[i]
                places[i].size = data_view.shape[0]
                places[i].bytes = &data_view[0] if data_view.shape[0] else NULL
            with nogil:
                start = mq_log_chunk_append_rows(&self._chunk, <const mq_log_message_row *> &data[0], start, size,
                                                 places, count)
        finally:
            free(places)
        if start < 0:
            raise InvalidValueError("a row ends outside of its content")
        return start

    def update_tallies(self, tallies not None, const uint16_t[::1] numberings not None):
        if tallies.dtype != tally_dtype() or not len(tallies) == numberings.shape[0] == CHANNEL_ID_COUNT:
            raise InvalidValueError(
                f"tallies has {len(tallies)} elements; "
                f"pass one for each of the {CHANNEL_ID_COUNT} channel IDs"
            )
        cdef Py_buffer view
        PyObject_GetBuffer(tallies, &view, PyBUF_WRITABLE)  # `tallies.view` would run Python code of NumPy
        with nogil:
            mq_log_chunk_update_tallies(&self._chunk, <mq_channel_tally *> view.buf, &numberings[0])
        PyBuffer_Release(&view)

    def count_messages_by_channel(self):
        if self._message_counts is None or self._counted_messages != self._chunk.entry_count:
            self._message_counts = _count_messages(&self._chunk)
            self._counted_messages = self._chunk.entry_count
        return self._message_counts

    def build_message_indexes(self, uint64_t shift):
        cdef uint8_t **places = <uint8_t **> _allocate_per_channel(sizeof(uint8_t *))
        cdef uint8_t *to
        cdef uint16_t channel
        cdef uint32_t count
        try:
            counts = self.count_messages_by_channel()
            size = len(counts) * MQ_LOG_INDEX_HEADER_BYTES
            size += self._chunk.entry_count * <Py_ssize_t> MQ_LOG_INDEX_ENTRY_BYTES
            records = PyBytes_FromStringAndSize(NULL, size)
            to = <uint8_t *> PyBytes_AS_STRING(records)
            for channel, count in counts.items():
                places[channel] = mq_log_index_write_header(to, channel, count)
                to = places[channel] + count * <uint64_t> MQ_LOG_INDEX_ENTRY_BYTES
            mq_log_chunk_write_index(&self._chunk, shift, places)
            return records
        finally:
            free(places)

    def clear_messages(self):
        mq_log_chunk_clear(&self._chunk)
        self._message_counts = None

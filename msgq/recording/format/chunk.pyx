"""Chunks that are being filled: a Python face on chunk.h."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

RECORD_HEADER = MQ_RECORD_HEADER
ENTRY = [("log_time", "<u8"), ("offset", "<u8"), ("channel", "<u4"), ("sequence", "<u4"), ("origin_time", "<i8")]

cdef enum:
    SMALLEST_RECORD = 48  # entries for so many bytes of room each: a chunk of tiny messages may close early


cdef class _Bytes:
    """Some bytes of a chunk, as a buffer that keeps the chunk."""

    cdef Chunk _chunk
    cdef void *_start
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, True, flags)


cdef object _view(Chunk chunk, void *start, Py_ssize_t size):
    cdef _Bytes view = _Bytes.__new__(_Bytes)
    view._chunk, view._start, view._size = chunk, start, size
    return memoryview(view)


cdef class Chunk:
    """See chunk.pyi."""

    def __cinit__(self, uint64_t enough, uint64_t largest):
        cdef uint64_t room = enough + largest + MQ_RECORD_HEADER
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

    def clear(self):
        self._chunk.used = self._chunk.entries_used = 0

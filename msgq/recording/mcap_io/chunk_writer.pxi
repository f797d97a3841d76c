"""Writes messages into chunks, in compiled code. See core.pyi."""


cdef enum:
    NO_SUCH_CHANNEL = -1
cdef int64_t _time_end = TIME_MAX


cdef class ChunkWriter:
    """See core.pyi."""

    cdef readonly dict channels
    cdef readonly int64_t message_count
    cdef readonly int64_t latest_time
    cdef object _segment
    cdef ChunkBuffer _chunk
    cdef uint64_t _chunk_bytes
    cdef int64_t[::1] _next_sequence

    def __cinit__(self, segment, dict channels not None, uint64_t chunk_bytes):
        import numpy as np

        self.channels = channels
        self._segment, self._chunk_bytes = segment, chunk_bytes
        self._chunk = ChunkBuffer(chunk_bytes, 0)
        self._next_sequence = np.full(CHANNEL_ID_COUNT, NO_SUCH_CHANNEL, np.int64)

    def add_channel(self, records not None):
        cdef uint16_t number = records.channel_record.id
        self.channels[number] = records
        self._next_sequence[number] = 0

    def write_message(self, int64_t channel, data, int64_t log_time, publish_time, sequence, int64_t origin_time):
        cdef int64_t published = log_time if publish_time is None else publish_time
        cdef Py_buffer view
        cdef int64_t number
        self._check_channel(channel)
        if not (0 <= log_time < _time_end and 0 <= published < _time_end):
            raise InvalidValueError(
                f"log_time {log_time} ns or publish_time {published} ns is out of range; "
                f"use 0 to {_time_end - 1}"
            )
        number = self._next_sequence[channel] if sequence is None else <int64_t> (sequence & 0xFFFFFFFF)
        if PyBytes_CheckExact(data):
            self._append_message(channel, number, log_time, published, origin_time, PyBytes_AS_STRING(data),
                                 PyBytes_GET_SIZE(data))
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                self._append_message(channel, number, log_time, published, origin_time, view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        self._next_sequence[channel] = <uint32_t> (number + 1)

    cdef int _append_message(self, int64_t channel, int64_t sequence, int64_t log_time, int64_t publish_time,
                             int64_t origin_time, const void *data, uint64_t size) except -1:
        if self._chunk._chunk.used_bytes >= self._chunk_bytes:
            self.flush_chunk()  # before the message: if the disk is full, the message is not written
        while not mq_log_chunk_append_message(&self._chunk._chunk, <uint16_t> channel, <uint32_t> sequence, log_time,
                                              publish_time, origin_time, data, size):
            self._flush_for_payload(size)
        self.message_count += 1
        self.latest_time = max(self.latest_time, log_time)
        return 0

    cdef int _check_channel(self, int64_t channel) except -1:
        if not 0 <= channel < MQ_LOG_CHANNEL_ID_COUNT or self._next_sequence[channel] == NO_SUCH_CHANNEL:
            raise InvalidValueError(f"channel {channel} does not exist; use a number that `channel` returned")
        return 0

    cdef int _flush_for_payload(self, uint64_t size) except -1:
        self.flush_chunk()
        if size > self._chunk._chunk.capacity_bytes - self._chunk_bytes:
            self._chunk = ChunkBuffer(self._chunk_bytes, size)
        return 0

    def assign_sequences(self, const int64_t[:] channels not None, const int64_t[:] sequences=None):
        cdef Py_ssize_t count = channels.shape[0]
        cdef Py_ssize_t i
        cdef int64_t number
        import numpy as np

        sequences_out = np.empty(count, np.uint32)
        cdef uint32_t[::1] numbers = sequences_out
        if sequences is not None and sequences.shape[0] != count:
            raise InvalidValueError(
                f"sequences has {sequences.shape[0]} elements for {count} messages; "
                "pass one per message"
            )
        for i in range(count):
            self._check_channel(channels[i])
        for i in range(count):
            number = self._next_sequence[channels[i]] if sequences is None else sequences[i]
            numbers[i] = <uint32_t> number
            self._next_sequence[channels[i]] = <uint32_t> (number + 1)
        return sequences_out

    def append_rows(self, rows not None, contents not None):
        cdef int64_t done = 0, start
        while done < len(rows):
            if self._chunk._chunk.used_bytes >= self._chunk_bytes:
                self.flush_chunk()
            start, done = done, self._chunk.append_rows(rows, done, contents)
            if done > start:
                self.message_count += done - start
                self.latest_time = max(self.latest_time, <int64_t> rows["log_time"][start:done].max())
            else:
                self._flush_for_payload(rows["length"][done])

    def close_channels(self):
        self._next_sequence[:] = NO_SUCH_CHANNEL

    def flush_chunk(self):
        if len(self._chunk):
            self._segment.write_chunk(self._chunk, self.channels, True, (self._chunk.clear_messages,))

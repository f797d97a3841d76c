"""Rings into chunks: a Python face on capture.h."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport UINT32_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from msgq.impl.ring.connection cimport Connection, enter
from msgq.impl.ground.clock cimport host_offset_ns
from msgq.impl.ground.core cimport mq_now_ns
from msgq.impl.ring.core cimport mq_subscriber, mq_subscriber_reset
from msgq.recording.format.chunk cimport Chunk, mq_log_chunk

from msgq.errors import CorruptSegmentError, InvalidValueError, RecordingError, SegmentSizeError


cdef extern from "recorder/capture.h" nogil:
    enum:
        MQ_CAPTURE_CHANNELS
    ctypedef struct mq_channel:
        uint32_t source
        uint32_t epoch
        bint counted
        bint tracked
    ctypedef struct mq_source:
        mq_subscriber *from_ "from"
        int64_t publish_offset
        bint begun
        bint ended
    ctypedef struct mq_capture:
        mq_source *sources
        uint32_t source_count
        uint32_t turn
        mq_channel *channels
        uint32_t channel_count
        int64_t clock_offset_ns
        uint32_t stuck
    ctypedef enum mq_capture_end:
        MQ_CAPTURE_TIME
        MQ_CAPTURE_FULL
        MQ_CAPTURE_CORRUPT
        MQ_CAPTURE_NO_CHANNEL
    mq_capture_end mq_capture_run(mq_capture *c, mq_log_chunk *chunk, int64_t until_ns)


def _no_channel():
    text = f"{MQ_CAPTURE_CHANNELS - 1} endpoints and epochs are all that MCAP can number; begin another recording"
    return RecordingError(text)


cdef class Capture:
    """See capture.pyi."""

    cdef mq_capture _capture
    cdef list _sockets

    def __cinit__(self):
        memset(&self._capture, 0, sizeof(self._capture))
        self._capture.channels = <mq_channel *> calloc(MQ_CAPTURE_CHANNELS, sizeof(mq_channel))
        if self._capture.channels == NULL:
            raise MemoryError()
        self._capture.clock_offset_ns = host_offset_ns()
        self._sockets = []

    def __dealloc__(self):
        free(self._capture.channels)
        PyMem_Free(self._capture.sources)

    @property
    def clock_offset_ns(self):
        return self._capture.clock_offset_ns

    def add(self, Connection socket not None, int64_t publish_offset=-1):
        cdef uint32_t count = self._capture.source_count
        cdef mq_source *grown
        enter(socket)
        grown = <mq_source *> PyMem_Realloc(self._capture.sources, (count + 1) * sizeof(mq_source))
        if grown == NULL:
            raise MemoryError()
        memset(&grown[count], 0, sizeof(mq_source))
        grown[count].from_ = &socket._subscriber
        grown[count].publish_offset = publish_offset
        self._sockets.append(socket)
        self._capture.sources = grown
        self._capture.source_count = count + 1
        return count

    def begin_epoch(self, uint32_t source, int64_t publish_offset=-1):
        if source >= self._capture.source_count:
            raise InvalidValueError(f"source {source} of {self._capture.source_count}")
        self._capture.sources[source].begun = False
        self._capture.sources[source].publish_offset = publish_offset

    def replace(self, uint32_t source, Connection socket not None, int64_t publish_offset=-1):
        self.begin_epoch(source, publish_offset)  # what it counts has nothing to do with what the former one did
        enter(socket)
        self._sockets[source] = socket
        self._capture.sources[source].from_ = &socket._subscriber
        self._capture.sources[source].ended = False

    def new_channel(self):
        if self._capture.channel_count + 1 >= MQ_CAPTURE_CHANNELS:
            raise _no_channel()
        self._capture.channel_count += 1
        self._capture.channels[self._capture.channel_count].source = UINT32_MAX
        return self._capture.channel_count

    def now(self):
        return mq_now_ns() + self._capture.clock_offset_ns

    def run(self, Chunk chunk not None, double seconds):
        cdef int64_t until = mq_now_ns() + <int64_t> (min(max(seconds, 0.0), 3600.0) * 1e9)
        cdef mq_capture_end end
        for socket in self._sockets:
            enter(<Connection> socket)  # who had no side segment looks for one
        with nogil:
            end = mq_capture_run(&self._capture, &chunk._chunk, until)
        if end == MQ_CAPTURE_CORRUPT:
            self._resume(self._capture.stuck)
        if end == MQ_CAPTURE_NO_CHANNEL:
            raise _no_channel()
        return end == MQ_CAPTURE_FULL

    cdef int _resume(self, uint32_t source) except -1:
        cdef Connection socket = self._sockets[source]
        try:
            if socket._follow():
                return 0
        except SegmentSizeError:
            self._capture.sources[source].ended = True
            raise
        mq_subscriber_reset(&socket._subscriber)
        raise CorruptSegmentError("no message where one should be: somebody wrote nonsense into the ring; recording "
                                  "goes on at the present", socket._endpoint, socket._ring.path)

    def channels(self, uint32_t start=1):
        return [(i, channel.source, channel.epoch, channel.counted, channel.tracked)
                for i in range(start, self._capture.channel_count + 1)
                for channel in [self._capture.channels[i]] if channel.source != UINT32_MAX]

    def lost(self, uint32_t source):
        return self._sockets[source].lost

    def unread(self, uint32_t source):
        try:
            return len(self._sockets[source].receive_many())
        except (CorruptSegmentError, SegmentSizeError):
            return None

    def ended(self, uint32_t source):
        return self._capture.sources[source].ended

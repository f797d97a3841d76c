"""The headers of meters as Cython sees them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.channel.core cimport mq_channel_subscriber
from msgq.impl.records.core cimport mq_record_file_parts
from msgq.impl.workqueue.core cimport mq_queue_parts


cdef extern from "meter/counting.h" nogil:
    ctypedef struct mq_histogram:
        uint64_t count
        uint64_t min
        uint64_t max
        double sum
    ctypedef struct mq_meter:
        mq_histogram periods_ns
        mq_histogram sizes
        mq_histogram delays_ns
        uint64_t messages
        uint64_t without_timestamp
        uint64_t negative_delays
        int64_t first_ns
        int64_t last_ns
        int64_t stamp_offset
        int64_t stamp_clock
        int64_t clock_offset_ns
    ctypedef struct mq_meter_input:
        mq_meter *meter
        void *reader
        int64_t (*sample)(mq_meter *m, void *reader) noexcept nogil
        const uint32_t *(*futex_word)(void *reader) noexcept nogil
        uint32_t (*prepare_wait)(void *reader) noexcept nogil
    void mq_histogram_add(mq_histogram *h, uint64_t value, uint64_t times)
    void mq_meter_count_messages(mq_meter *m, int64_t now_ns, uint64_t found)
    int64_t mq_meter_wall_ns(const mq_meter *m)
    double mq_histogram_percentile(const mq_histogram *h, double share)


cdef extern from "sys/prctl.h" nogil:
    enum:
        PR_GET_TIMERSLACK
        PR_SET_TIMERSLACK
    int prctl(int option, ...)


cdef extern from "meter/channel.h" nogil:
    int64_t mq_meter_channel_sample(mq_meter *m, void *reader)
    int64_t mq_meter_events_sample(mq_meter *m, void *reader)


cdef extern from "meter/queue.h" nogil:
    ctypedef struct mq_meter_queue:
        const mq_queue_parts *parts
    int64_t mq_meter_queue_sample(mq_meter *m, void *reader)
    void mq_meter_queue_begin(mq_meter_queue *q)
    void mq_meter_queue_add_ages(mq_meter *m, const mq_meter_queue *q)


cdef extern from "meter/records.h" nogil:
    ctypedef struct mq_meter_records:
        const mq_record_file_parts *parts
        uint64_t *seen
        uint64_t lost
        bint board
    int64_t mq_meter_records_sample(mq_meter *m, void *reader)
    void mq_meter_records_begin(const mq_meter_records *r)


cdef extern from "meter/topic.h" nogil:
    int64_t mq_meter_topic_sample(mq_meter *m, void *reader)
    const uint32_t *mq_meter_topic_word(void *reader)
    uint32_t mq_meter_topic_prepare_wait(void *reader)


cdef class Meter:
    """Counts the messages of one endpoint. Each kind says how it is read."""
    cdef readonly str endpoint  # with its mark
    cdef mq_meter_input c
    cdef uint64_t _lost_before
    cdef int64_t _since_ns

    cdef int _set_timestamp_source(self, stamp_offset, str clock) except -1
    # Each kind says, and sets c.reader and c.sample:
    cdef int _begin(self) except -1         # before looks without the GIL: raise if there can be none
    cdef int _end(self) except -1           # after them
    cdef bint _recover(self) except -1         # a look found what needs Python: raise, or say whether to go on
    cdef object _lost(self)                 # so far; None: nobody knows
    cdef int _measure_waiting(self) except -1  # before a reading
    cdef str _measured_until(self)                   # see MeterReading

"""Cython declarations of meters."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.channel.core cimport mq_channel_subscriber
from msgq.impl.records.core cimport mq_record_file_parts
from msgq.impl.workqueue.core cimport mq_queue_file_parts


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
    ctypedef struct mq_metered_endpoint:
        mq_meter *meter
        void *reader
        int64_t (*sample)(mq_meter *m, void *reader) noexcept nogil
        const uint32_t *(*futex_word)(void *reader) noexcept nogil
        uint32_t (*prepare_wait)(void *reader) noexcept nogil
    void mq_histogram_add_value(mq_histogram *h, uint64_t value, uint64_t times)
    void mq_meter_count_messages(mq_meter *m, int64_t now_ns, uint64_t found)
    int64_t mq_meter_read_wall_clock_ns(const mq_meter *m)
    double mq_histogram_compute_percentile(const mq_histogram *h, double share)


cdef extern from "sys/prctl.h" nogil:
    enum:
        PR_GET_TIMERSLACK
        PR_SET_TIMERSLACK
    int prctl(int option, ...)


cdef extern from "meter/channel.h" nogil:
    int64_t mq_meter_sample_channel(mq_meter *m, void *reader)
    int64_t mq_meter_sample_queue_events(mq_meter *m, void *reader)


cdef extern from "meter/queue.h" nogil:
    ctypedef struct mq_meter_queue_reader:
        const mq_queue_file_parts *parts
    int64_t mq_meter_sample_queue(mq_meter *m, void *reader)
    void mq_meter_start_queue(mq_meter_queue_reader *q)
    void mq_meter_add_waiting_ages(mq_meter *m, const mq_meter_queue_reader *q)


cdef extern from "meter/records.h" nogil:
    ctypedef struct mq_meter_record_reader:
        const mq_record_file_parts *parts
        uint64_t *seen_write_counts
        uint64_t lost
        bint is_board
    int64_t mq_meter_sample_records(mq_meter *m, void *reader)
    void mq_meter_start_records(const mq_meter_record_reader *r)


cdef extern from "meter/topic.h" nogil:
    int64_t mq_meter_sample_topic(mq_meter *m, void *reader)
    const uint32_t *mq_meter_get_topic_futex_word(void *reader)
    uint32_t mq_meter_prepare_topic_wait(void *reader)


cdef class EndpointMeter:
    """Counts the messages of one endpoint. Subclasses read the endpoint."""
    cdef readonly str endpoint  # name of the endpoint with its type prefix
    cdef mq_metered_endpoint c
    cdef uint64_t _lost_before
    cdef int64_t _started_ns

    cdef int _set_timestamp_source(self, stamp_offset, str clock) except -1
    # Methods of subclasses, which also set c.reader and c.sample:
    cdef int _begin_sampling(self) except -1  # called before samples without the GIL; raises if no sample is possible
    cdef int _end_sampling(self) except -1  # called after the samples
    cdef bint _handle_sample_failure(self) except -1  # called if a sample needs Python; True: continue
    cdef object _count_lost(self)  # None: unknown
    cdef int _measure_waiting_messages(self) except -1  # called before a reading
    cdef str _get_delay_end(self)                   # see MeterReading

"""Cython declarations of meters."""

from libc.stdint cimport int64_t, uint64_t

from msgq.impl.base.core cimport Bus, mq_futex_waitv_entry
from msgq.impl.sources.core cimport mq_source, mq_source_status
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
        const int64_t *virtual_ns
    double mq_histogram_compute_percentile(const mq_histogram *h, double share)


cdef extern from "sys/prctl.h" nogil:
    enum:
        PR_GET_TIMERSLACK
        PR_SET_TIMERSLACK
    int prctl(int option, ...)


cdef extern from "meter/queue.h" nogil:
    ctypedef struct mq_meter_queue_reader:
        const mq_queue_file_parts *parts
    void mq_meter_start_queue(mq_meter_queue_reader *q)
    void mq_meter_add_waiting_ages(mq_meter *m, const mq_meter_queue_reader *q)


cdef extern from "meter/sample.h" nogil:
    ctypedef struct mq_metered_endpoint:
        mq_meter *meter
        mq_source *source
        mq_meter_queue_reader *queue
        bint counts_events
        mq_source_status status
    int64_t mq_meter_sample(mq_metered_endpoint *e)
    bint mq_meter_prepare_wait(const mq_metered_endpoint *e, mq_futex_waitv_entry *word)


cdef class EndpointMeter:
    """Counts the messages of one endpoint. Subclasses read the endpoint."""
    cdef readonly str endpoint  # name of the endpoint with its type prefix
    cdef mq_metered_endpoint c
    cdef bint _closed
    cdef uint64_t _lost_before
    cdef int64_t _started_ns
    cdef Bus _bus  # None: shared memory

    cdef int _set_timestamp_source(self, stamp_offset, str clock) except -1
    cdef int _enter_bus(self, str in_prefix) except -1  # called by subclasses that open an endpoint of this prefix
    # Methods of subclasses, which also set c.source or c.queue:
    # Called before samples without the GIL, which need the returned object. Raises if no sample is possible.
    cdef object _begin_sampling(self)
    cdef int _handle_sample_failure(self, mq_source_status status) except -1  # called if a sample needs Python
    cdef object _count_lost(self)  # None: unknown
    cdef int _measure_waiting_messages(self) except -1  # called before a reading
    cdef str _get_delay_end(self)                   # see MeterReading

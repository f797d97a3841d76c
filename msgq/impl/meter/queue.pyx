"""Counts what is sent into a queue that publishes no events, by looks at its file. See queue.pyi."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from msgq.impl.meter.meter cimport Meter, mq_histogram, mq_meter
from msgq.impl.workqueue.core cimport mq_queue_parts
from msgq.impl.workqueue.core cimport QueueFile, queue_file

from msgq.common import naming
from msgq.errors import EndpointClosedError


cdef extern from "meter/queue.h" nogil:
    ctypedef struct mq_meter_queue:
        const mq_queue_parts *parts
    int64_t mq_meter_queue_sample(mq_meter *m, void *reader)
    void mq_meter_queue_begin(mq_meter_queue *q)
    void mq_meter_queue_add_ages(mq_meter *m, const mq_meter_queue *q)


cdef class QueueMeter(Meter):
    """See queue.pyi."""

    cdef QueueFile _file  # None: closed
    cdef mq_meter_queue _queue

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.QUEUE_MARK + name
        cdef QueueFile file = queue_file(name, in_prefix, None, None)
        if not file.open(False):
            raise file.missing_error()
        self._queue.parts = &file.parts
        mq_meter_queue_begin(&self._queue)
        self._file = file
        self.c.reader, self.c.sample = &self._queue, mq_meter_queue_sample

    def close(self):
        self._file = None

    cdef int _begin(self) except -1:
        if self._file is None:
            raise EndpointClosedError("the meter was closed", self.endpoint)
        return self._file.check_truncation()

    cdef int _measure_waiting(self) except -1:
        if self._file is None:
            return 0
        memset(&self.c.meter.delays_ns, 0, sizeof(mq_histogram))
        mq_meter_queue_add_ages(self.c.meter, &self._queue)
        return self._file.check_truncation()

    cdef str _measured_until(self):
        return "now"

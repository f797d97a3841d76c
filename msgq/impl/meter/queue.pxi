"""Counts what is sent into a queue that publishes no events, by looks at its file. See core.pyi."""


cdef class QueueMeter(Meter):
    """See core.pyi."""

    cdef QueueFile _file  # None: closed
    cdef mq_meter_queue _queue

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.QUEUE_NAME_PREFIX + name
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

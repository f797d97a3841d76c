"""Counts messages sent to a queue without events, by reads of its file. See core.pyi."""


cdef class QueueMeter(EndpointMeter):
    """See core.pyi."""

    cdef QueueFile _file  # None: closed
    cdef mq_meter_queue_reader _queue

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.QUEUE_NAME_PREFIX + name
        cdef QueueFile file = open_queue_file(name, in_prefix)
        self._enter_bus(in_prefix)
        self._queue.parts = &file.parts
        mq_meter_start_queue(&self._queue)
        self._file = file
        self.c.queue = &self._queue

    def close(self):
        self._file = None
        EndpointMeter.close(self)

    cdef object _begin_sampling(self):
        EndpointMeter._begin_sampling(self)
        self._file.check_truncation()
        return self._file

    cdef int _measure_waiting_messages(self) except -1:
        if self._file is None:
            return 0
        self._file.adopt_sizes()
        memset(&self.c.meter.delays_ns, 0, sizeof(mq_histogram))
        mq_meter_add_waiting_ages(self.c.meter, &self._queue)
        return self._file.check_truncation()

    cdef str _get_delay_end(self):
        return "now"

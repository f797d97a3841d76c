"""Counts messages whose files C cannot read: Python polls for their sizes. See core.pyi."""


cdef class PolledMeter(EndpointMeter):
    """See core.pyi."""

    def __init__(self, str endpoint):
        self.endpoint = endpoint
        self.c.sample = _sample_nothing  # messages are counted with the GIL, before the loop without the GIL

    def poll(self):
        return []

    cdef int _begin_sampling(self) except -1:
        sizes = self.poll()
        mq_meter_count_messages(self.c.meter, mq_meter_read_wall_clock_ns(self.c.meter), len(sizes))
        for size in sizes:
            mq_histogram_add_value(&self.c.meter.sizes, size, 1)
        return 0

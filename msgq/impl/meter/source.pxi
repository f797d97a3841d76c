"""Counts the messages that a source takes, and the events of a queue. See core.pyi."""


cdef class SourceMeter(EndpointMeter):
    """See core.pyi."""

    cdef EndpointSource _source  # None: closed, or the endpoint does not exist yet
    cdef object _lost  # last known number of lost messages; None: unknown

    def __init__(self, EndpointSource source not None, stamp_offset=None, str clock="host"):
        self.endpoint = source.endpoint
        self._set_timestamp_source(stamp_offset, clock)
        self._enter_bus(source.prefix)
        self._set_source(source)

    cdef int _set_source(self, EndpointSource source) except -1:
        source.prepare_to_count()
        self._source, self.c.source = source, &source.c
        return 0

    def close(self):
        self._count_lost()
        self._source, self.c.source = None, NULL
        EndpointMeter.close(self)

    cdef object _begin_sampling(self):
        EndpointMeter._begin_sampling(self)
        cdef EndpointSource source = self._source  # another thread may close this meter during the call
        if source is not None:
            source.prepare_to_take()
        return source

    cdef int _handle_sample_failure(self, mq_source_status status) except -1:
        cdef EndpointSource source = self._source
        if source is None:  # closed during the samples: the next sample raises
            return 0
        return source.map_missing_pool() if status == MQ_SOURCE_UNMAPPED else source.handle_corruption()

    cdef object _count_lost(self):
        if self._source is not None:
            self._lost = mq_source_count_unseen(self.c.source) if mq_source_lost_is_known(self.c.source) else None
        return self._lost


cdef class QueueEventsMeter(SourceMeter):
    """See core.pyi."""

    cdef str _name, _prefix

    def __init__(self, str name not None, str in_prefix not None):
        self.endpoint = naming.QUEUE_NAME_PREFIX + name
        self._name, self._prefix, self._lost = name, in_prefix, 0
        self.c.counts_events = True
        self._enter_bus(in_prefix)
        self._open_events(False)

    cdef int _open_events(self, bint whole) except -1:
        """Open the channel of the events, if the first event has created the channel."""
        try:
            self._set_source(open_events_source(self._name, self._prefix, whole))
        except SegmentError as error:
            if error.errno != ENOENT:
                raise
        return 0

    cdef object _begin_sampling(self):
        if self._source is None and not self._closed:
            self._open_events(True)  # the channel is new, so count all its messages
        return SourceMeter._begin_sampling(self)

    cdef str _get_delay_end(self):
        return "taken"

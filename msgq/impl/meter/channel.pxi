"""Counts messages of a channel, or of a queue by its events, as a passive subscriber. See core.pyi."""


cdef uint64_t ALL_HISTORY = <uint64_t> 1 << 62  # all messages that the channel still has


cdef int64_t _sample_nothing(mq_meter *m, void *reader) noexcept nogil:
    """Sample of a channel that does not exist yet."""
    return 0


cdef class _ChannelSubscriberMeter(EndpointMeter):
    cdef Subscriber _subscriber  # None: the channel does not exist yet

    cdef int _subscribe_channel(self, str name, str in_prefix, uint64_t history) except -1:
        channel_file = open_channel_file(name, in_prefix)
        self._subscriber = Subscriber(channel_file, "", history, 0, False, False, False, True, None)
        self.c.reader = &self._subscriber.c
        return 0

    def close(self):
        if self._subscriber is not None:
            self._subscriber.close()

    cdef int _begin_sampling(self) except -1:
        self._subscriber._check_usable()
        self._subscriber._file.check_truncation()
        self._subscriber._begin_use()
        return 0

    cdef int _end_sampling(self) except -1:
        self._subscriber._use_state = self._subscriber._fork_generation
        return self._subscriber._finish_requested_close()

    cdef bint _handle_sample_failure(self) except -1:
        """Map the pool of the next message, or raise its error. The next sample counts the message."""
        cdef mq_channel_message message
        self._subscriber._check_usable()
        self._subscriber._next_message(&message)
        return True

    cdef object _count_lost(self):
        return self._subscriber.c.lost


cdef class ChannelMeter(_ChannelSubscriberMeter):
    """See core.pyi."""

    def __init__(self, str name not None, str in_prefix not None, stamp_offset=None, str clock="host"):
        self.endpoint = naming.CHANNEL_NAME_PREFIX + name
        self._set_timestamp_source(stamp_offset, clock)
        self._subscribe_channel(name, in_prefix, 0)
        self.c.sample = mq_meter_sample_channel


cdef class QueueEventsMeter(_ChannelSubscriberMeter):
    """See core.pyi."""

    cdef str _name, _prefix
    cdef bint _closed

    def __init__(self, str queue not None, str in_prefix not None):
        self.endpoint = naming.QUEUE_NAME_PREFIX + queue
        self._name, self._prefix = events_channel(queue), in_prefix
        self.c.sample = _sample_nothing
        self._subscribe_events(0)

    cdef int _subscribe_events(self, uint64_t history) except -1:
        """Subscribe, if the first event has created the channel."""
        try:
            self._subscribe_channel(self._name, self._prefix, history)
        except SegmentError as error:
            if error.errno != ENOENT:
                raise
        else:
            self.c.sample = mq_meter_sample_queue_events
        return 0

    def close(self):
        self._closed = True
        _ChannelSubscriberMeter.close(self)

    cdef int _begin_sampling(self) except -1:
        if self._closed:
            raise EndpointClosedError("meter is closed", self.endpoint)
        if self._subscriber is None:
            self._subscribe_events(ALL_HISTORY)  # the channel is new, so count all its messages
        return 0 if self._subscriber is None else _ChannelSubscriberMeter._begin_sampling(self)

    cdef int _end_sampling(self) except -1:
        return 0 if self._subscriber is None else _ChannelSubscriberMeter._end_sampling(self)

    cdef object _count_lost(self):
        return 0 if self._subscriber is None else self._subscriber.c.lost

    cdef str _get_delay_end(self):
        return "taken"

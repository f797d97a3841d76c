"""Counts messages of a topic, as a passive subscriber. See core.pyi."""


cdef class TopicMeter(EndpointMeter):
    """See core.pyi."""

    cdef SubSocket _socket

    def __init__(self, Context context not None, endpoint, stamp_offset=None, str clock="host"):
        self.endpoint = endpoint.decode() if isinstance(endpoint, bytes) else endpoint
        self._set_timestamp_source(stamp_offset, clock)
        self._socket = SubSocket()
        self._socket.connect(context, endpoint, passive=True)
        self.c.reader = &self._socket._subscriber
        self.c.sample, self.c.futex_word = mq_meter_sample_topic, mq_meter_get_topic_futex_word
        self.c.prepare_wait = mq_meter_prepare_topic_wait

    def close(self):
        self._socket.close()

    cdef int _begin_sampling(self) except -1:
        check_usable(self._socket)  # the call also searches for a new side segment
        self._socket._begin_use()
        return 0

    cdef int _end_sampling(self) except -1:
        self._socket._use_state = self._socket._fork_generation
        return self._socket._finish_requested_close()

    cdef bint _handle_sample_failure(self) except -1:
        check_usable(self._socket)
        if not self._socket._remap_if_grown():
            text = "has invalid data: another program wrote into the ring"
            raise CorruptSegmentError(text, self.endpoint, self._socket._ring.path)
        return True

    cdef object _count_lost(self):
        return None if self._socket._subscriber.lost_unknown else self._socket._subscriber.lost

"""What has arrived at a subscriber in a simulation (view.h), and what a publisher has sent."""

from _collections import deque


cdef extern from "ring/view.h" nogil:
    void mq_ring_view_show(mq_ring_header *shown, const mq_ring_header *ring, uint64_t position)
    uint64_t mq_ring_view_end(const mq_ring_header *shown)
    bint mq_ring_view_is_intact(const mq_ring_side *side, uint64_t position)
    void mq_ring_view_repeat(mq_ring_subscriber *s, uint64_t position)
    void mq_ring_subscriber_skip_to(mq_ring_subscriber *s, uint64_t position, int64_t passed)
    uint64_t mq_ring_next_message_position(const uint8_t *data, uint32_t data_bytes, uint64_t position,
                                           c_bool *is_message)
    uint64_t mq_ring_message_size(const uint8_t *data, uint64_t position)


cdef enum ArrivalKind:
    ARRIVED    # the message can be received
    DROPPED    # the message never arrives: it is lost in its turn
    REPEATED   # the message arrives once more


@cython.final
cdef class ArrivalView:
    """See core.pxd, and the type stub (core.pyi)."""

    cdef int begin(self, SubConnection subscriber) except -1:
        """Show what is published now."""
        self._arrivals = deque()
        self.show(subscriber, <mq_ring_header *> subscriber._ring.address)
        self._show_to(subscriber._subscriber.published)
        return 0

    cdef int show(self, SubConnection subscriber, mq_ring_header *ring) except -1:
        """Show this mapping of the ring to the subscriber."""
        self._ring, self._side, subscriber._subscriber.ring = ring, subscriber._subscriber.side, &self._shown
        self._show_to(mq_ring_view_end(&self._shown))
        return 0

    def add_arrival(self, uint64_t start, uint64_t end):
        self._arrivals.append((ARRIVED, start, end))

    def add_drop(self, uint64_t start, uint64_t end):
        self._arrivals.append((DROPPED, start, end))

    def add_repeat(self, uint64_t start, uint64_t end):
        self._arrivals.append((REPEATED, start, end))

    def lap(self):
        self._is_lapped = True

    def is_overwritten(self, uint64_t position):
        return not mq_ring_view_is_intact(self._side, position)

    def skip_overwritten(self, uint64_t next_start):
        cdef uint64_t end = mq_ring_view_end(&self._shown)
        while not mq_ring_view_is_intact(self._side, end) and self._arrivals:
            end = self._arrivals.popleft()[2]
        if not mq_ring_view_is_intact(self._side, end):
            end = next_start
        self._show_to(end)

    cdef bint advance(self, mq_ring_subscriber *s, bint conflate) except -1:
        """Show what has arrived. Return True if the subscriber may receive."""
        cdef uint64_t start, end
        cdef int kind
        self._show_to(mq_ring_view_end(&self._shown))  # the publisher may have changed
        if self._is_lapped:
            return self._recover_from_lap(s)
        while self._arrivals:
            kind, start, end = self._arrivals[0]
            # a receive that conflates passes drops and repeats before a later arrival
            if kind == ARRIVED or (conflate and self._has_later_arrival()):
                self._show_to(end)
            elif s.cursor != mq_ring_view_end(&self._shown):
                if not conflate or kind == DROPPED:
                    break  # first the messages before it
            elif kind == DROPPED:
                self._show_to(end)
                s.published = end
                mq_ring_subscriber_skip_to(s, end, 1)
            elif mq_ring_view_is_intact(self._side, start):
                mq_ring_view_repeat(s, start)
            self._arrivals.popleft()
        return s.cursor != mq_ring_view_end(&self._shown)

    cdef bint _has_later_arrival(self):
        return any([kind != DROPPED for kind, _, _ in list(self._arrivals)[1:]])

    cdef void _show_to(self, uint64_t position) noexcept:
        mq_ring_view_show(&self._shown, self._ring, position)

    cdef bint _recover_from_lap(self, mq_ring_subscriber *s) except -1:
        """Continue after all that has arrived, as after a real lap."""
        self._is_lapped = False
        while self._arrivals:
            self._show_to(self._arrivals.popleft()[2])
        mq_ring_subscriber_recover_from_lap(s)
        return True


cdef list read_published(PubSocket publisher):
    """Return the messages that the publisher has sent since the last call: start, payload, end and stamps of each."""
    cdef mq_ring_publisher *p = &publisher._publisher
    cdef uint64_t start = publisher._published_to, end, size
    cdef const uint8_t *payload
    cdef mq_stamps stamps
    cdef c_bool is_message
    cdef list messages = []
    stamps.publish_time = stamps.origin_time = 0
    while start != p.position:
        end = mq_ring_next_message_position(p.data, p.data_bytes, start, &is_message)
        if end == start:
            raise CorruptSegmentError("another program wrote into the ring", publisher._endpoint, publisher._ring.path)
        if is_message:
            size = mq_ring_message_size(p.data, start) - p.stamps
            payload = p.data + <uint32_t> start + 8 + p.stamps
            if p.stamps:
                mq_stamps_read(&stamps, payload)
            messages.append((start, (<const char *> payload)[:size], end, stamps.publish_time, stamps.origin_time))
        start = end
    publisher._published_to = start
    return messages

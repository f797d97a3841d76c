"""What has arrived at a subscriber in a simulation (view.h)."""

from collections import deque


cdef extern from "channel/view.h" nogil:
    bint mq_channel_view_begin(mq_channel_view *v, mq_channel_subscriber *s, uint64_t end)
    void mq_channel_view_free(mq_channel_view *v)
    void mq_channel_view_show(mq_channel_view *v, bint conflate)
    void mq_channel_view_retract(mq_channel_view *v, uint64_t position)
    void mq_channel_view_lap(mq_channel_subscriber *s, uint64_t position)
    bint mq_channel_view_repeat(const mq_channel_view *v, mq_channel_subscriber *s, uint64_t position)


@no_gc
@cython.final
cdef class ArrivalView:
    """See core.pxd, and the type stub (core.pyi)."""

    def __dealloc__(self):
        mq_channel_view_free(&self.c)

    cdef int begin(self, mq_channel_subscriber *s) except -1:
        """Show what is published now. Before the capacity is set, there is nothing to show."""
        self._arrivals, self._dropped, self.conflates = deque(), set(), s.conflate
        if s.order.capacity:
            self._show_ring(s, mq_index_ring_load_tail(&s.order))
        return 0

    cdef int _show_ring(self, mq_channel_subscriber *s, uint64_t end) except -1:
        if not mq_channel_view_begin(&self.c, s, end):
            raise MemoryError("no memory for the view of a subscriber")
        return 0

    def add_arrival(self, uint64_t position):
        self._arrivals.append(position)

    def add_drop(self, uint64_t position):
        self._dropped.add(position)

    def lap(self, uint64_t end):
        self._overwritten_end = self.c.end = end
        self._arrivals.clear()

    cdef bint is_lapped(self, mq_channel_subscriber *s) noexcept:
        """True if a fault has overwritten messages that the subscriber has not read."""
        return mq_channel_load_cursor(s) < self._overwritten_end

    cdef int advance(self, mq_channel_subscriber *s) except -1:
        """Show what has arrived since. A message that arrives again is received before those that follow it."""
        if not self.c.ring.capacity:
            if not mq_channel_subscriber_join(s, False):
                return 0
            self._show_ring(s, max(s.order.capacity, self.c.end))
        mq_channel_view_lap(s, self._overwritten_end)
        self._pass_dropped()
        while self._arrivals and self._show_next(s, self._arrivals[0]):
            self._arrivals.popleft()
            self._pass_dropped()
        mq_channel_view_show(&self.c, s.conflate)
        if self._dropped:
            self._hide_dropped()
        return 0

    cdef bint _show_next(self, mq_channel_subscriber *s, uint64_t position) except -1:
        """Handle the next arrival. Return False if the subscriber must read the messages before it first."""
        if position >= self.c.end:
            self.c.end = position + 1
            return True
        if s.conflate and any([later >= self.c.end for later in self._arrivals]):
            return True
        if mq_channel_load_cursor(s) < self.c.end:
            return False
        mq_channel_view_repeat(&self.c, s, position)
        return True

    cdef int _pass_dropped(self) except -1:
        while self.c.end in self._dropped:
            self.c.end += 1
        return 0

    cdef int _hide_dropped(self) except -1:
        """Show the dropped messages as retracted, and forget those that have left the channel."""
        cdef uint64_t oldest = mq_index_ring_load_tail(&self.c.ring) - self.c.ring.capacity
        self._dropped = {position for position in self._dropped if position >= oldest}
        for position in self._dropped:
            mq_channel_view_retract(&self.c, position)
        return 0

"""What has arrived at a subscriber in a simulation (view.h)."""

from _collections import deque


cdef extern from "channel/view.h" nogil:
    bint mq_channel_view_begin(mq_channel_view *v, mq_channel_subscriber *s)
    void mq_channel_view_free(mq_channel_view *v)
    void mq_channel_view_show(mq_channel_view *v)
    void mq_channel_view_retract(mq_channel_view *v, uint64_t position)
    void mq_channel_view_choose_tail(mq_channel_view *v, const mq_channel_subscriber *s)
    void mq_channel_view_lap(mq_channel_subscriber *s, uint64_t position)
    bint mq_channel_view_is_intact(const mq_channel_view *v, uint64_t position)
    void mq_channel_set_cursor(mq_channel_subscriber *s, uint64_t cursor)


@no_gc
@cython.final
cdef class ArrivalView:
    """See core.pxd, and the type stub (core.pyi)."""

    def __dealloc__(self):
        mq_channel_view_free(&self.c)

    cdef int begin(self, mq_channel_subscriber *s) except -1:
        """Show what is published now. Before the capacity is set, there is nothing to show."""
        self._repeats, self._dropped, self.conflates = deque(), set(), s.conflate
        if s.order.capacity:
            self._show_ring(s, mq_index_ring_load_tail(&s.order))
        return 0

    cdef int _show_ring(self, mq_channel_subscriber *s, uint64_t end) except -1:
        if not mq_channel_view_begin(&self.c, s):
            raise MemoryError("no memory for the view of a subscriber")
        self.c.end = max(self.c.end, end)
        self._pass_dropped()
        return 0

    cdef bint _has_ring(self, mq_channel_subscriber *s) except -1:
        """Show the ring from its first message on, if it has its capacity only now. Return False if it has none yet."""
        if not self.c.ring.capacity and mq_channel_subscriber_join(s, False):
            self._show_ring(s, s.order.capacity)
        return self.c.ring.capacity != 0

    # ---- arriving messages ----

    def add_arrival(self, uint64_t position):
        if position < self.c.end:
            self._repeats.append(position)
            return
        self.c.end = position + 1
        self._pass_dropped()

    def add_drop(self, uint64_t position):
        self._dropped.add(position)
        self._pass_dropped()

    def lap(self, uint64_t end):
        self._overwritten_end = self.c.end = end
        self._repeats.clear()

    cdef int _pass_dropped(self) except -1:
        while self.c.end in self._dropped:
            self.c.end += 1
        return 0

    # ---- state for the subscriber ----

    cdef bint is_lapped(self, mq_channel_subscriber *s) noexcept:
        """True if a fault has overwritten messages that the subscriber has not read."""
        return mq_channel_load_cursor(s) < self._overwritten_end

    cdef int advance(self, mq_channel_subscriber *s) except -1:
        """Show what has arrived: messages that a fault has overwritten as lost, then a message that arrived again."""
        if self._has_ring(s):
            self._end_repeat(s)
            mq_channel_view_lap(s, self._overwritten_end)
            self._begin_repeat(s)
            self._show(s)
        return 0

    cdef int show_arrivals(self, mq_channel_subscriber *s) except -1:
        """Do the same as `advance`, but leave losses and repeated messages to the next receive."""
        if self._has_ring(s):
            self._end_repeat(s)
            self._show(s)
        return 0

    cdef int _show(self, mq_channel_subscriber *s) except -1:
        mq_channel_view_show(&self.c)
        if self._dropped:
            self._hide_dropped()
        mq_channel_view_choose_tail(&self.c, s)
        return 0

    cdef int _begin_repeat(self, mq_channel_subscriber *s) except -1:
        """Set the cursor back to a message that arrived again after the subscriber has passed it."""
        cdef uint64_t cursor = mq_channel_load_cursor(s)
        if self._resume_at:
            return 0
        if s.conflate and cursor < self.c.end:
            self._repeats.clear()
        while self._repeats and <uint64_t> self._repeats[0] < cursor and not self._resume_at:
            self._repeated = self._repeats.popleft()
            if mq_channel_view_is_intact(&self.c, self._repeated):
                self._resume_at = cursor
                mq_channel_set_cursor(s, self._repeated)
        return 0

    cdef int _end_repeat(self, mq_channel_subscriber *s) except -1:
        """Set the cursor forward if the repeated message was received, or cannot be received any more."""
        if not self._resume_at:
            return 0
        if (mq_channel_load_cursor(s) == self._repeated and mq_channel_view_is_intact(&self.c, self._repeated)
                and self._resume_at >= self._overwritten_end and not (s.conflate and self._resume_at < self.c.end)):
            return 0
        mq_channel_set_cursor(s, self._resume_at)
        self._resume_at = 0
        return 0

    cdef int _hide_dropped(self) except -1:
        """Show the dropped messages as retracted, and forget those that have left the channel."""
        cdef uint64_t oldest = mq_index_ring_load_tail(&self.c.ring) - self.c.ring.capacity
        self._dropped = {position for position in self._dropped if position >= oldest}
        for position in self._dropped:
            mq_channel_view_retract(&self.c, position)
        return 0

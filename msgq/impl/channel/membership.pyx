"""The rows of a subscriber, and the pools that it has mapped. Both stay as long as a view of it is held."""

from cython cimport no_gc_clear
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport (
    MQ_LISTENERS, MQ_NO_ROW, MQ_OPEN_BYTE, MQ_PUBLISHERS, MQ_VIEWERS, MQ_VIEWER_BYTE, mq_geometry, mq_geometry_of,
    mq_hub_clear_pins, mq_channel_row_liveness, mq_hub_list, mq_hub_listeners, mq_hub_vacant_viewer, mq_hub_viewer_died,
    mq_identity_leave, mq_identity_write, mq_load_acquire_u64, mq_pin_clear, mq_row_table, mq_row_table_reserve,
    mq_store_release_u64,
)
from msgq.impl.channel.hub cimport Hub
from msgq.impl.channel.pool cimport Pool, open_pool
from msgq.impl.base.core cimport (
    MQ_DEAD, mq_liveness_probe_begin, mq_liveness_probe, mq_liveness_probe_end, mq_liveness_lock,
    mq_liveness_unlock, mq_self,
)
from msgq.impl.base.liveness cimport fork_generation, identify, new_uid
from msgq.impl.base.segment cimport unlock_file
from msgq.impl.base.views cimport Holder

from msgq.errors import TooManySubscribersError


@no_gc_clear  # needed to the last
cdef class Membership:
    """See membership.pxd."""

    def __cinit__(self):
        self.viewer = -1
        self.generation = fork_generation

    def __dealloc__(self):
        self.leave()

    cdef int join(self, str node) except -1:
        """Be listed, if there is room, or if the channel has no more than so many subscribers."""
        cdef mq_self us
        cdef mq_geometry g
        cdef mq_row_table roster
        cdef int row, fd
        cdef bytes name = node.encode()
        identify(&us, NULL)
        fd = self.hub.lock()
        try:
            g = mq_geometry_of(mq_load_acquire_u64(&self.hub.hub.geometry))
            if 0 < g.subscribers <= MQ_LISTENERS:
                others = self.hub.listeners()  # in any row: some may have come before there was a limit
                if len(others) >= <int> g.subscribers:
                    text = f"has as many subscribers as it may ({g.subscribers}): {', '.join(others)}"
                    raise TooManySubscribersError(text, self.hub.name)
            roster = mq_hub_listeners(self.hub.hub, MQ_LISTENERS)
            row = mq_row_table_reserve(&roster, self.hub.roll(), &self.listed)
            if row != MQ_NO_ROW:
                self.row = &self.hub.hub.listeners[row]
                self.listed_uid = new_uid()
                mq_hub_list(self.row, &us, self.listed_uid, self.listed != NULL, name)
            else:
                self.listed = mq_liveness_lock(self.hub.roll(), MQ_OPEN_BYTE, True)  # the channel stays
        finally:
            unlock_file(fd)
        return 0

    cdef int become_viewer(self) except -1:
        """Take a bit in pins. What a dead owner of it still pins is cleared first, in all pools of the living."""
        cdef mq_self us
        cdef int row, fd
        identify(&us, NULL)
        fd = self.hub.lock()
        try:
            row = mq_hub_vacant_viewer(self.hub.hub, self.hub.roll(), 0)
            while row != MQ_NO_ROW:
                if mq_hub_viewer_died(self.hub.hub, row):
                    _clear_pins(self.hub, row)
                self.views = mq_liveness_lock(self.hub.roll(), MQ_VIEWER_BYTE + row, False)
                if self.views != NULL or errno != EAGAIN:  # EAGAIN: its owner is just leaving, or has an unknown child
                    break
                row = mq_hub_vacant_viewer(self.hub.hub, self.hub.roll(), row + 1)
            if row == MQ_NO_ROW:
                text = f"has {MQ_VIEWERS} subscribers that take views, and no room for more: receive() copies instead"
                raise TooManySubscribersError(text, self.hub.name)
            self.view_uid = new_uid()
            mq_identity_write(&self.hub.hub.viewers[row].who, &us, self.view_uid, self.views != NULL)
            self.viewer = row
            if self.row != NULL:
                mq_store_release_u64(&self.row.viewer, row + 1)
        finally:
            unlock_file(fd)
        return 0

    cdef void change_held(self, int by) noexcept:
        self.held += by
        if self.row != NULL:
            mq_store_release_u64(&self.row.held, self.held)

    cdef void leave(self) noexcept:
        """Give the rows back, now or when the last view is let go. In a forked child they are the parent's."""
        self.closed = True
        if self.held or self.generation != fork_generation:
            return
        if self.row != NULL:
            mq_identity_leave(&self.row.who, self.listed_uid, &self.listed)
            self.row = NULL
        mq_liveness_unlock(self.listed)
        self.listed = NULL
        if self.viewer >= 0:
            mq_identity_leave(&self.hub.hub.viewers[self.viewer].who, self.view_uid, &self.views)
            self.viewer = -1


cdef int _clear_pins(Hub hub, int viewer) except -1:
    """Take the bit of a dead viewer from the pools of the living; those of the dead are not written again."""
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(hub.roll())
    cdef Pool pool
    cdef uint64_t uid
    try:
        for i in range(MQ_PUBLISHERS):
            uid = mq_load_acquire_u64(&hub.hub.publishers[i].pool_uid)
            if uid and mq_channel_row_liveness(hub.hub, &inquiry, i) != MQ_DEAD:
                pool = open_pool(hub, uid, True)
                if pool is not None:
                    mq_hub_clear_pins(&pool.slots, viewer)
    finally:
        mq_liveness_probe_end(&inquiry)
    return 0


@no_gc_clear  # _let_go needs the mapping
cdef class MappedPool(Holder):
    """See membership.pxd."""

    cdef void _let_go(self, uint64_t slot) noexcept:
        mq_pin_clear(&self.pool.slots, slot, self.member.viewer)
        self.member.change_held(-1)
        if self.member.closed:
            self.member.leave()

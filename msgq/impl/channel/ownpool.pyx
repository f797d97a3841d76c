"""A publisher's row and pool: how it comes, grows, and goes. The hub's lock keeps joiners apart; see hub.h."""

from cython cimport no_gc_clear
from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport (
    MQ_NODE_NAME, MQ_NO_ROW, MQ_PUBLISHERS, MQ_STAMPS, mq_channel_give_back, mq_channel_order,
    mq_channel_publisher_begin, mq_channel_publisher_end, mq_geometry, mq_geometry_of, mq_hub_enter, mq_hub_find,
    mq_hub_free, mq_channel_row_liveness, mq_identity_leave, mq_load_acquire_u64, mq_load_relaxed_u64, mq_pool_stride,
    mq_channel_publisher_row,
)
from msgq.impl.channel.hub cimport Hub, sweep
from msgq.impl.channel.pool cimport make_pool, name_pool
from msgq.impl.base.clock cimport host_offset_ns
from msgq.impl.base.core cimport (
    MQ_DEAD, mq_eventcount_has_waiters_mp, mq_eventcount_notify_mp, mq_liveness_probe_begin, mq_liveness_probe,
    mq_liveness_probe_end, mq_liveness_unlock, mq_self,
)
from msgq.impl.base.liveness cimport fork_generation, identify, text as _text
from msgq.impl.base.segment cimport unlock_file

import contextlib

from msgq.errors import CorruptSegmentError, MessageTooLargeError, MsgqError, TooManyPublishersError


cdef enum:
    DEFAULT_SLOT_BYTES = 4096
    DEFAULT_POOL_BYTES = 67108864       # at most, unless four slots need more
    LEAST_SLOTS = 4
    SPARE_SLOTS = 2                     # beyond one for each entry of the order: one being written, one just left it


@no_gc_clear  # __dealloc__ needs the mappings
cdef class OwnPool:
    """See ownpool.pxd."""

    def __dealloc__(self):
        if self.generation == fork_generation:
            self._leave_row()
        mq_channel_publisher_end(&self.c)

    cdef void _leave_row(self) noexcept:
        if self.open:
            mq_identity_leave(&self.c.row.who, self.c.slots.uid, &self.hold)
        self.open = False

    cdef int leave(self, bint sweeps) except -1:
        """Publish no more from here. Messages that are in the order stay, and the pool with them.

        `sweeps`: remove it now if there are none; else the next one who joins does.
        """
        cdef int fd
        if not self.open or self.lent:
            return 0
        self._leave_row()
        if not sweeps:
            return 0
        with contextlib.suppress(MsgqError):  # else the next one who joins does it
            fd = self.hub.lock(False)
            if fd >= 0:
                try:
                    sweep(self.hub)
                finally:
                    unlock_file(fd)
        return 0

    cdef int drop(self, uint64_t slot, bint sweeps) except -1:
        """A loan is over without a message."""
        mq_channel_give_back(&self.c, slot)
        return self.returned(sweeps)

    cdef int returned(self, bint sweeps) except -1:
        """A loan is over."""
        self.lent -= 1
        if self.superseded:
            self.leave(sweeps)
        return 0


cdef OwnPool enter_channel(Hub hub, str node, slots, slot_bytes, uint64_t max_bytes, bint newcomer):
    """Take a row, and make its pool: `slot_bytes` of payload each, in as many slots as asked for, or as are fit."""
    cdef OwnPool own = OwnPool.__new__(OwnPool)
    cdef int row, left, fd
    cdef uint64_t each = slot_bytes or DEFAULT_SLOT_BYTES
    own.hub, own.generation = hub, fork_generation
    fd = hub.lock()
    try:
        hub._settle(None, None, None, None, True)
        left = sweep(hub)
        if newcomer:
            _check_limit(hub)
        row = mq_hub_find(hub.hub, hub.roll(), &own.hold)
        while row == MQ_NO_ROW and left:
            left = sweep(hub, left - 1)
            row = mq_hub_find(hub.hub, hub.roll(), &own.hold)
        if row == MQ_NO_ROW:
            text = f"all {MQ_PUBLISHERS} rows of publishers are in use: {_holders(hub)}"
            raise TooManyPublishersError(text, hub.name)
        try:
            _take_row(own, row, node, _slots(hub, slots, each, max_bytes), each)
        except BaseException:
            mq_liveness_unlock(own.hold)
            own.hold = NULL
            raise
    finally:
        unlock_file(fd)
    return own


cdef int _take_row(OwnPool own, int number, str node, uint64_t slots, uint64_t slot_bytes) except -1:
    """Make the pool, enter it in the row, and only then give it its name: so no file is without a row."""
    cdef Hub hub = own.hub
    cdef mq_self us
    cdef mq_channel_publisher_row *row = &hub.hub.publishers[number]
    cdef bytes name = node.encode()
    identify(&us, NULL)
    offset = host_offset_ns()
    own.pool = make_pool(hub, slots, slot_bytes, us.pid, node)
    own.c.slots, own.c.hub, own.c.row, own.c.number = own.pool.slots, hub.hub, row, number
    own.c.stamps = mq_geometry_of(mq_load_acquire_u64(&hub.hub.geometry)).stamps == MQ_STAMPS
    own.c.clock_offset, own.c.roll = offset, hub.roll()
    if not mq_channel_order(hub.hub, &own.c.order):  # it was settled a moment ago
        raise CorruptSegmentError("its order makes no sense: foreign bytes; remove it (msgq clean)", hub.name, hub.path)
    if not mq_channel_publisher_begin(&own.c):
        raise MemoryError()
    mq_hub_enter(row, &us, own.hold != NULL, &own.c.slots, own.pool.segment.size, own.pool.segment.inode, name)
    try:
        name_pool(hub, own.pool)
    except BaseException:
        mq_hub_free(row)
        raise
    own.open = True
    hub.own[number] = own.c.slots.uid
    if mq_eventcount_has_waiters_mp(&hub.hub.attention):  # a publisher may have died between its message and the wake
        mq_eventcount_notify_mp(&hub.hub.attention)
    return 0


cdef uint64_t _slots(Hub hub, asked, uint64_t slot_bytes, uint64_t max_bytes) except 0:
    """How many slots: as asked, else one for each entry and a few, within the limits."""
    cdef uint64_t stride = mq_pool_stride(slot_bytes)
    cdef uint64_t wanted = mq_geometry_of(mq_load_acquire_u64(&hub.hub.geometry)).capacity + SPARE_SLOTS
    if asked is None:
        wanted = max(min(wanted, <uint64_t> DEFAULT_POOL_BYTES // stride), <uint64_t> LEAST_SLOTS)
    else:
        wanted = asked
    if asked is None and wanted * stride > max_bytes:
        wanted = max(max_bytes // stride, <uint64_t> 1)
    if wanted * stride > max_bytes:
        text = (f"{wanted} slots of {slot_bytes} bytes need {wanted * stride}; the pool may have {max_bytes} "
                "(max_bytes)")
        raise MessageTooLargeError(text, hub.name)
    return wanted


cdef int _check_limit(Hub hub) except -1:
    """Refuse a publisher more than the channel may have; rows that stay for loans are of publishers that count once."""
    cdef mq_geometry g = mq_geometry_of(mq_load_acquire_u64(&hub.hub.geometry))
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(hub.roll())
    cdef int living = 0
    for i in range(MQ_PUBLISHERS):
        if mq_load_relaxed_u64(&hub.hub.publishers[i].superseded) == 0:
            living += mq_channel_row_liveness(hub.hub, &inquiry, i) != MQ_DEAD
    mq_liveness_probe_end(&inquiry)
    if <uint64_t> living >= g.publishers:
        text = f"has as many publishers as it may ({g.publishers}): {_holders(hub)}"
        raise TooManyPublishersError(text, hub.name)
    return 0


cdef str _holders(Hub hub):
    """Who has the rows, for an error."""
    cdef const mq_channel_publisher_row *row
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(hub.roll())
    cdef dict count = {}
    for i in range(MQ_PUBLISHERS):
        if mq_channel_row_liveness(hub.hub, &inquiry, i) != MQ_DEAD:
            row = &hub.hub.publishers[i]
            who = f"{_text(row.node, MQ_NODE_NAME)} {mq_load_relaxed_u64(&row.who.pid)}"
            count[who] = count.get(who, 0) + 1
    mq_liveness_probe_end(&inquiry)
    return ", ".join(f"{who} ({rows} rows)" if rows > 1 else who for who, rows in count.items())

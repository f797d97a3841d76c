"""A channel's hub: opening and making it, its lock, what all agree on, and what the dead left.

All that changes it but messages happens under the lock (hub.h); all that is read is checked.
"""

from cython cimport no_gc_clear
from libc.errno cimport EEXIST, ENOENT
from libc.stdint cimport uint64_t
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.stat cimport struct_stat
from posix.unistd cimport close

from msgq.impl.channel.core cimport (
    MQ_ANY_SUBSCRIBERS, MQ_HUB_CREATOR, MQ_HUB_MAJOR, MQ_HUB_OK, MQ_HUB_SCHEMA_DATA, MQ_HUB_VERSION, MQ_LISTENERS,
    MQ_LISTENER_BYTE, MQ_NODE_NAME, MQ_NO_STAMPS, MQ_OPEN_BYTE, MQ_PUBLISHERS, MQ_STAMPS, mq_channel_order,
    mq_geometry, mq_geometry_of, mq_geometry_word, mq_hub, mq_hub_check, mq_hub_free, mq_channel_row_liveness,
    mq_hub_references, mq_hub_settle, mq_hub_withdraw, mq_hub_write, mq_identity, mq_identity_liveness,
    mq_listener_row, mq_load_acquire_u64, mq_load_relaxed_u64, mq_index_ring, mq_index_ring_tail, mq_channel_publisher_row,
    mq_schema_parts_of,
)
from msgq.impl.channel.snapshot cimport channel_counts, channel_stats
from msgq.impl.base.clock cimport host_time_ns
from msgq.impl.base.core cimport (
    MQ_DEAD, mq_liveness_probe_begin, mq_liveness_probe, mq_liveness_probe_end, mq_liveness_file, mq_liveness_lock,
    mq_liveness_unlock, mq_schema_parts,
)
from msgq.impl.base.descriptor cimport describe, described
from msgq.impl.base.liveness cimport fork_generation, text as _text, this_process
from msgq.impl.base.segment cimport (
    Segment, check_file, create_file, cut, failure, guard_word, lock_file, map_file, name_file,
    open_file, remove_file, unlock_file,
)

import os

from msgq.common import naming, sharing
from msgq.errors import (
    ChannelMismatchError, CorruptSegmentError, LayoutVersionError, SegmentError, StateError,
)


cdef extern from "sys/file.h" nogil:
    enum:
        LOCK_EX
        LOCK_NB
    int flock(int fd, int operation)


cdef extern from "base/layout.h":
    enum:
        MQ_NAME


cdef enum:
    DEFAULT_CAPACITY = 64
    DEAD_POOLS = 8                      # that stay for those who have not read their messages yet
    DEAD_BYTES = 268435456              # of all of them
    OPEN_TRIES = 5                      # when others remove it, or directories of its prefix, at the same time


@no_gc_clear  # what has rows or slots in it needs it mapped to the last
cdef class Hub:
    """See hub.pyi."""

    def __dealloc__(self):
        self._let_go()

    cdef int _stay(self) except -1:
        """Say that the channel is open here, so that nobody takes it for unused before there is a row."""
        cdef int fd = self.lock()
        self.hold = mq_liveness_lock(self.roll(), MQ_OPEN_BYTE, True)  # NULL: there are no such locks here
        self.generation = fork_generation
        unlock_file(fd)
        return 0

    cdef void _let_go(self) noexcept:
        if self.generation == fork_generation:
            mq_liveness_unlock(self.hold)
        self.hold = NULL

    def close(self):
        """Make no more publishers and subscribers here; those that there are say themselves that they use it."""
        self._let_go()

    @property
    def path(self):
        return self.segment.path

    @property
    def inode(self):
        return self.segment.inode

    cdef const mq_liveness_file *roll(self) noexcept:
        return &self.segment.roll

    cdef int lock(self, bint patient=True) except -2:
        """Hold off all who join; returns what unlock_file takes. -1: somebody has it, and we are not patient."""
        cdef struct_stat found
        cdef int fd = open_file(self.name, self.segment.path, O_RDWR)
        if fd < 0:
            raise self._removed()
        try:
            if patient:
                lock_file(fd, self.name, self.segment.path)
            elif flock(fd, LOCK_EX | LOCK_NB) != 0:
                close(fd)
                return -1
            with naming.chosen(trust=self.trust):
                check_file(fd, &found, self.name, self.segment.path)
            if found.st_ino != self.segment.inode or not found.st_nlink:
                raise self._removed()
        except BaseException:
            unlock_file(fd)
            raise
        return fd

    cdef int check_whole(self) except -1:
        if self.whole != NULL and mq_load_relaxed_u64(self.whole) != 1:
            raise cut(self.name, self.segment)
        return 0

    # ---- what all agree on ----

    @property
    def geometry(self):
        cdef mq_geometry g = mq_geometry_of(mq_load_acquire_u64(&self.hub.geometry))
        most = None if g.subscribers == MQ_ANY_SUBSCRIBERS else g.subscribers
        return g.capacity or None, g.publishers or None, most or None, g.stamps == MQ_STAMPS if g.stamps else None

    def settle(self, capacity=None, publishers=None, subscribers=None, stamps=None, bint publishes=False):
        """Agree on a geometry, under the lock; with a publisher all that nobody has said gets its default."""
        cdef int fd
        cdef uint64_t before = mq_load_acquire_u64(&self.hub.geometry)
        cdef mq_geometry wanted = self._agreed(mq_geometry_of(before), capacity, publishers, subscribers, stamps,
                                               publishes)
        if mq_geometry_word(wanted) == before and (not wanted.capacity or mq_load_acquire_u64(&self.hub.tail)):
            return  # all was said before, and what was said does not change
        if not self.writable:
            raise StateError("was opened passive, and cannot settle what nobody has said so far", self.name)
        fd = self.lock()
        try:
            self._settle(capacity, publishers, subscribers, stamps, publishes)
        finally:
            unlock_file(fd)

    cdef int _settle(self, capacity, publishers, subscribers, stamps, bint publishes) except -1:
        cdef mq_geometry before = mq_geometry_of(mq_load_acquire_u64(&self.hub.geometry))
        if not mq_hub_settle(self.hub, self._agreed(before, capacity, publishers, subscribers, stamps, publishes)):
            text = f"has a capacity of {before.capacity}, which no channel has: foreign bytes; remove it (msgq clean)"
            raise CorruptSegmentError(text, self.name, self.segment.path)
        return 0

    cdef mq_geometry _agreed(self, mq_geometry before, capacity, publishers, subscribers, stamps,
                             bint publishes) except *:
        """What is there, and what is asked for beside it."""
        cdef mq_geometry g
        stamped = None if stamps is None else MQ_STAMPS if stamps else MQ_NO_STAMPS
        g.capacity = self._agree("capacity", before.capacity, capacity, DEFAULT_CAPACITY if publishes else 0)
        g.publishers = self._agree("publishers", before.publishers, publishers, MQ_PUBLISHERS if publishes else 0)
        g.subscribers = self._agree("subscribers", before.subscribers, subscribers,
                                    MQ_ANY_SUBSCRIBERS if publishes else 0)
        g.stamps = self._agree("stamps", before.stamps, stamped, MQ_STAMPS if publishes else 0)
        return g

    cdef uint64_t _agree(self, str what, uint64_t there, asked, uint64_t default) except? 0:
        if asked is None:
            return there or default
        if there and there != asked:
            shown = {MQ_ANY_SUBSCRIBERS: "any number"} if what == "subscribers" else {}
            if what == "stamps":
                shown = {MQ_STAMPS: True, MQ_NO_STAMPS: False}
            text = (f"has {what}={shown.get(there, there)}, and {what}={shown.get(asked, asked)} was asked for; leave "
                    "it out to take what is there, or remove the channel (msgq clean)")
            raise ChannelMismatchError(text, self.name, self.segment.path)
        return asked

    @property
    def messages(self):
        """How many were published so far, of all publishers."""
        cdef mq_index_ring order
        return mq_index_ring_tail(&order) - order.capacity if mq_channel_order(self.hub, &order) else 0

    @property
    def creator(self):
        return _text(self.hub.creator, MQ_HUB_CREATOR), mq_load_relaxed_u64(&self.hub.creator_pid)

    @property
    def created_ns(self):
        return mq_load_relaxed_u64(&self.hub.created_ns)

    @property
    def schema(self):
        cdef mq_schema_parts at = mq_schema_parts_of(&self.hub.schema, self.hub.schema_data, MQ_HUB_SCHEMA_DATA)
        return described(&at)

    def describe(self, schema, bint replace):
        """Set the schema, unless there is one that is not to be replaced; returns the one that is there then."""
        cdef mq_schema_parts at = mq_schema_parts_of(&self.hub.schema, self.hub.schema_data, MQ_HUB_SCHEMA_DATA)
        cdef int fd
        if not self.writable:
            raise StateError("was opened passive, and cannot describe the messages", self.name)
        fd = self.lock()
        try:
            there = described(&at)
            if there is None or replace:
                describe(&at, schema)
                there = schema
            return there
        finally:
            unlock_file(fd)

    def stats(self):
        """See `msgq.stats.channel`. It maps pools and reads; nobody notices."""
        stats = channel_stats(self.segment, self.name, self.prefix, self.trust, self.schema)
        self.check_whole()
        return stats

    def counts(self):
        counts = channel_counts(self.segment)
        self.check_whole()
        return counts

    # ---- who takes part, for errors ----

    def viewer(self, int row):
        cdef const mq_identity *who = &self.hub.viewers[row].who
        return f"{_text(who.name, MQ_NAME)} {mq_load_relaxed_u64(&who.pid)}"

    def listeners(self):
        """Return the subscribers that are listed and live, as texts."""
        cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(self.roll())
        cdef mq_listener_row *row
        cdef list names = []
        for i in range(MQ_LISTENERS):
            row = &self.hub.listeners[i]
            if mq_identity_liveness(&inquiry, &row.who, MQ_LISTENER_BYTE + i) != MQ_DEAD:
                names.append(f"{_text(row.node, MQ_NODE_NAME)} {mq_load_relaxed_u64(&row.who.pid)}")
        mq_liveness_probe_end(&inquiry)
        return names

    def unlink(self, wanted=None):
        """Remove the channel's files, if `wanted(stats)` says so; returns whether it did."""
        cdef int fd = self.lock()
        try:
            if wanted is not None and not wanted(self.stats()):
                return False
            for i in range(MQ_PUBLISHERS):
                uid = mq_load_acquire_u64(&self.hub.publishers[i].pool_uid)
                if uid:
                    remove_pool(self, uid)
            remove_file(self.name, self.segment.path)
            return True
        finally:
            unlock_file(fd)

    def clear_pools(self):
        """Remove pools that lead nowhere (`remains.lost_pools`), and return the channel's stats before that."""
        cdef int fd = self.lock()
        try:
            stats = self.stats()
            sweep(self)
            for path in stats.orphans:
                remove_file(self.name, path)
            return stats
        finally:
            unlock_file(fd)

    def _removed(self):
        text = "the channel was removed, and perhaps made anew; what is open goes on, nobody can join: open it again"
        return SegmentError(text, self.name, self.segment.path, ENOENT)


# ---- the hub ----

cdef Hub _adopt(Segment segment, str name, str in_prefix, object trust, int mode, bint writable):
    cdef Hub hub = Hub.__new__(Hub)
    hub.name, hub.prefix, hub.trust, hub.mode, hub.writable = name, in_prefix, trust, mode, writable
    hub.segment, hub.hub = segment, <mq_hub *> segment.address
    hub.whole = guard_word(segment.guard) if segment.guard != NULL else NULL
    return hub


cdef Hub _find_hub(str name, str in_prefix, str path, object trust, bint writable):
    """Map the hub that is there; None: there is none."""
    cdef struct_stat found
    cdef Segment segment
    cdef int fd = open_file(name, path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, name, path)
        if <size_t> found.st_size < sizeof(mq_hub):
            raise CorruptSegmentError(f"has {found.st_size} bytes, too few for a channel; remove it", name, path)
        segment = map_file(fd, &found, writable, name, path)
        status = mq_hub_check(<const mq_hub *> segment.address, segment.size)
        if status == MQ_HUB_VERSION:
            text = f"has another layout than this library, which has version {MQ_HUB_MAJOR}; use one version of msgq"
            raise LayoutVersionError(text, name, path)
        if status != MQ_HUB_OK:
            raise CorruptSegmentError("is not a channel of msgq; remove it", name, path)
        return _adopt(segment, name, in_prefix, trust, found.st_mode & 0o777, writable)
    finally:
        close(fd)


cdef Hub _make_hub(str name, str in_prefix, str path, object mode, object trust, str creator):
    """Make the hub; None: another process was faster."""
    cdef struct_stat found
    cdef Segment segment
    cdef int permissions = naming.mode(mode, name)
    cdef bytes who = creator.encode()[:MQ_HUB_CREATOR - 1]
    cdef int kind = 1 if name.endswith(":broadcast") else 2 if ":mbx:" in name else 0
    if in_prefix:
        sharing.make_directories(name, naming.channel_directories(in_prefix), permissions)
    cdef int fd = create_file(name, path, sizeof(mq_hub), permissions)
    try:
        check_file(fd, &found, name, path)
        segment = map_file(fd, &found, True, name, path)
        mq_hub_write(<mq_hub *> segment.address, kind, host_time_ns(), this_process().pid, who)
        if not name_file(fd, name, path):
            return None
        return _adopt(segment, name, in_prefix, trust, permissions, True)
    finally:
        close(fd)


def open_hub(str name, str in_prefix, create=False, mode=None, trust=None, bint writable=False, str creator=""):
    """Open the channel, by default to look on: `create` True only makes it, False only opens it, None does either."""
    cdef Hub hub
    cdef int tries = OPEN_TRIES
    path = naming.channel_path(name, in_prefix)
    sharing.trusted(name)  # a name that is wrong is told now, not when the first file of another user comes
    while True:
        try:
            hub = None if create else _find_hub(name, in_prefix, path, trust, writable)
            if hub is None and create is False:
                raise failure("there is no such channel", name, path, ENOENT)
            if hub is None:
                hub = _make_hub(name, in_prefix, path, mode, trust, creator)
            if hub is None and create:
                raise failure("the channel is there already", name, path, EEXIST)
            if hub is not None:
                if writable:
                    hub._stay()
                return hub
        except SegmentError as error:
            tries -= 1
            if create is False or error.errno != ENOENT or not tries:  # else it was removed meanwhile
                raise


# ---- what the dead left ----

def remove_orphan(str name, str in_prefix, uint64_t uid):
    """Remove a pool of a channel that has no hub. False: it has one, or the pool is gone.

    A hub that comes now has other pools: their uids are random words.
    """
    if os.path.lexists(naming.channel_path(name, in_prefix)):
        return False
    return remove_file(name, naming.pool_path(name, in_prefix, uid))


cdef int sweep(Hub hub, int most=DEAD_POOLS) except -1:
    """Remove the pools of the dead, under the lock: those that nobody can reach, and the oldest of too many.

    Returns how many are left, `most` at most.
    """
    cdef mq_index_ring order
    cdef mq_channel_publisher_row *row
    cdef mq_liveness_probe inquiry
    cdef uint64_t newest
    cdef int i
    cdef bint begun = mq_channel_order(hub.hub, &order)
    cdef list dead = []
    inquiry = mq_liveness_probe_begin(hub.roll())
    for i in range(MQ_PUBLISHERS):
        row = &hub.hub.publishers[i]
        if mq_load_acquire_u64(&row.pool_uid) and mq_channel_row_liveness(hub.hub, &inquiry, i) == MQ_DEAD:
            count = mq_hub_references(&order, i, &newest) if begun else 0
            dead.append((newest if count else 0, i, mq_load_relaxed_u64(&row.pool_bytes)))
    mq_liveness_probe_end(&inquiry)
    dead.sort()
    left, size = len(dead), sum(each[2] for each in dead)
    for newest, i, pool_bytes in dead:
        if newest and left <= most and size <= DEAD_BYTES:
            break
        _free(hub, &order if begun else NULL, i)
        left, size = left - 1, size - pool_bytes
    return left


cdef int remove_pool(Hub hub, uint64_t uid) except -1:
    with naming.chosen(trust=hub.trust):
        remove_file(hub.name, naming.pool_path(hub.name, hub.prefix, uid))
    return 0


cdef int _free(Hub hub, const mq_index_ring *order, int i) except -1:
    """Take a dead publisher's messages out of the order, and its pool away."""
    cdef mq_channel_publisher_row *row = &hub.hub.publishers[i]
    if order != NULL:
        mq_hub_withdraw(order, i)
    remove_pool(hub, mq_load_relaxed_u64(&row.pool_uid))
    mq_hub_free(row)
    return 0

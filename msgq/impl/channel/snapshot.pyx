"""Read a channel's files for msgq.stats and `Channel.diagnose`: mapped read-only, no lock, no trace.

It stands below the hub, which calls it.
"""

from libc.stdint cimport uint64_t
from posix.fcntl cimport O_RDONLY
from posix.stat cimport struct_stat
from posix.unistd cimport close

from msgq.impl.channel.core cimport (
    MQ_ANY_SUBSCRIBERS, MQ_HUB_CREATOR, MQ_LISTENERS, MQ_LISTENER_BYTE, MQ_NODE_NAME, MQ_OPEN_BYTE, MQ_PUBLISHERS,
    MQ_STAMPS, MQ_VIEWERS, MQ_VIEWER_BYTE, mq_channel_order, mq_geometry, mq_geometry_of, mq_hub,
    mq_channel_row_liveness, mq_identity, mq_identity_liveness, mq_listener_row, mq_load_acquire_u64,
    mq_load_relaxed_u64, mq_index_ring, mq_index_ring_tail, mq_pool, mq_pool_check, mq_channel_publisher_row, mq_pool_map,
)
from msgq.impl.base.core cimport (
    MQ_DEAD, mq_liveness_probe_begin, mq_liveness_probe, mq_liveness_probe_end, mq_liveness, mq_liveness_is_locked,
)
from msgq.impl.base.liveness cimport is_alive, text
from msgq.impl.base.segment cimport Segment, check_file, map_file, open_file

import os

from msgq.common import naming
from msgq.errors import SegmentError
from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ChannelViewer
from msgq.common.stats.endpoint import EndpointCounts


cdef extern from "channel/snapshot.h" nogil:
    ctypedef struct mq_ordered:
        uint64_t messages
    ctypedef struct mq_holding:
        uint64_t views, outdated, publish_time
    ctypedef struct mq_listener_copy:
        uint64_t cursor, joined, received, lost, resets, held, viewer, lag
    void mq_snapshot_order(const mq_index_ring *order, unsigned row, mq_ordered *out)
    void mq_snapshot_pins(const mq_pool_map *pool, const mq_ordered *ordered, mq_holding *holdings)
    void mq_snapshot_figures(const mq_listener_row *row, mq_listener_copy *out)
    void mq_snapshot_ahead(const mq_index_ring *order, mq_listener_copy *of)


cdef extern from "base/layout.h":
    enum:
        MQ_NAME


_KINDS = ("pubsub", "broadcast", "mailbox")


cdef class _Look:
    """One look at a channel."""
    cdef Segment segment
    cdef const mq_hub *hub
    cdef str name, in_prefix
    cdef object trust
    cdef mq_index_ring order
    cdef mq_liveness_probe inquiry
    cdef mq_holding holdings[64]    # of viewers, by row
    cdef dict files                 # bytes of pools, by uid

    cdef object publishers(self):
        cdef const mq_channel_publisher_row *row
        cdef mq_ordered ordered
        cdef uint64_t uid
        found = []
        for i in range(MQ_PUBLISHERS):
            row = &self.hub.publishers[i]
            uid = mq_load_acquire_u64(&row.pool_uid)
            if not uid:
                continue
            mq_snapshot_order(&self.order, i, &ordered)
            left = mq_load_acquire_u64(&row.who.uid) == 0
            who = participant(&row.who, mq_channel_row_liveness(self.hub, &self.inquiry, i))
            found.append(ChannelPublisher(
                who, text(row.node, MQ_NODE_NAME), mq_load_relaxed_u64(&row.slots),
                mq_load_relaxed_u64(&row.slot_bytes), mq_load_relaxed_u64(&row.sent), mq_load_relaxed_u64(&row.bytes),
                mq_load_relaxed_u64(&row.refused), mq_load_relaxed_u64(&row.withdrawn), ordered.messages,
                naming.pool_path(self.name, self.in_prefix, uid), self.pool(uid, &ordered), left,
                mq_load_relaxed_u64(&row.superseded) != 0))
        return tuple(found)

    cdef object pool(self, uint64_t uid, const mq_ordered *ordered):
        """See who holds what in a pool; returns its bytes, or None when it cannot be read."""
        cdef struct_stat found
        cdef Segment segment
        cdef mq_pool_map slots
        cdef int fd
        path = naming.pool_path(self.name, self.in_prefix, uid)
        try:
            with naming.chosen(trust=self.trust):
                fd = open_file(self.name, path, O_RDONLY)
                if fd < 0:
                    return None
                try:
                    check_file(fd, &found, self.name, path)
                    if <size_t> found.st_size < sizeof(mq_pool):
                        return None
                    segment = map_file(fd, &found, False, self.name, path)
                finally:
                    close(fd)
        except SegmentError:
            return None
        if mq_pool_check(<mq_pool *> segment.address, segment.size, self.segment.inode, uid, &slots) != NULL:
            return None
        mq_snapshot_pins(&slots, ordered, self.holdings)
        return segment.size

    cdef tuple subscribers(self):
        """Return those that are listed, and which of them is which viewer."""
        cdef mq_listener_copy of
        cdef const mq_listener_row *row
        cdef mq_liveness life
        found, nodes = [], {}
        for i in range(MQ_LISTENERS):
            row = &self.hub.listeners[i]
            if not mq_load_acquire_u64(&row.who.uid):
                continue
            life = mq_identity_liveness(&self.inquiry, &row.who, MQ_LISTENER_BYTE + i)
            mq_snapshot_figures(row, &of)
            if life != MQ_DEAD and self.order.capacity:
                mq_snapshot_ahead(&self.order, &of)
            node = text(row.node, MQ_NODE_NAME)
            nodes[of.viewer] = node
            lag = None if life == MQ_DEAD else of.lag
            found.append(ChannelSubscriber(participant(&row.who, life), node, of.cursor, lag, of.received, of.lost,
                                           of.resets, of.held))
        return tuple(found), nodes

    cdef object viewers(self, dict nodes):
        cdef const mq_identity *who
        cdef mq_holding *of
        found = []
        for i in range(MQ_VIEWERS):
            who = &self.hub.viewers[i].who
            of = &self.holdings[i]
            if mq_load_acquire_u64(&who.uid) or of.views:
                life = mq_identity_liveness(&self.inquiry, who, MQ_VIEWER_BYTE + i)
                found.append(ChannelViewer(participant(who, life), nodes.get(i + 1, ""), of.views, of.outdated,
                                           of.publish_time or None))
        return tuple(found)

    cdef tuple orphans(self):
        """Pools that belong to no row. The files were listed first: a row is entered before its pool has a name."""
        uids = {mq_load_acquire_u64(&self.hub.publishers[i].pool_uid) for i in range(MQ_PUBLISHERS)}
        paths = [naming.pool_path(self.name, self.in_prefix, uid) for uid in self.files if uid not in uids]
        return tuple(filter(os.path.lexists, paths))


cdef object participant(const mq_identity *who, mq_liveness life):
    return Participant(mq_load_relaxed_u64(&who.pid), mq_load_relaxed_u64(&who.thread_id),
                       mq_load_relaxed_u64(&who.start_time), text(who.name, MQ_NAME), is_alive(life))


cdef object channel_stats(Segment segment, str name, str in_prefix, trust, schema):
    """Look at a channel, whose hub is mapped and checked."""
    cdef _Look look = _Look.__new__(_Look)
    cdef const mq_hub *hub = <const mq_hub *> segment.address
    cdef mq_geometry g = mq_geometry_of(mq_load_acquire_u64(&hub.geometry))
    look.segment, look.hub, look.name, look.in_prefix, look.trust = segment, hub, name, in_prefix, trust
    look.files = pool_files(name, in_prefix)
    begun = mq_channel_order(hub, &look.order)
    if not begun:
        look.order.capacity = 0
    look.inquiry = mq_liveness_probe_begin(&segment.roll)
    try:
        publishers = look.publishers()
        subscribers, nodes = look.subscribers()
        viewers = look.viewers(nodes)
        opened = is_alive(mq_liveness_is_locked(&look.inquiry, MQ_OPEN_BYTE))
    finally:
        mq_liveness_probe_end(&look.inquiry)
    kind = mq_load_relaxed_u64(&hub.kind)
    messages = mq_index_ring_tail(&look.order) - look.order.capacity if begun else 0
    return ChannelStats(
        name, in_prefix, segment.path, _KINDS[kind] if kind < <uint64_t> len(_KINDS) else "pubsub", g.capacity or None,
        g.publishers or None, None if g.subscribers == MQ_ANY_SUBSCRIBERS else g.subscribers or None,
        g.stamps == MQ_STAMPS if g.stamps else None, messages,
        (text(hub.creator, MQ_HUB_CREATOR), mq_load_relaxed_u64(&hub.creator_pid)),
        mq_load_relaxed_u64(&hub.created_ns),
        schema, segment.size, sum(look.files.values()), publishers, subscribers, viewers, opened, look.orphans())


cdef object channel_counts(Segment segment):
    """Return what moves in a channel, whose hub is mapped and checked. Its pools are not looked at."""
    cdef const mq_hub *hub = <const mq_hub *> segment.address
    cdef mq_liveness_probe inquiry = mq_liveness_probe_begin(&segment.roll)
    cdef mq_index_ring order
    cdef mq_listener_copy of
    cdef uint64_t size = 0, lost = 0
    cdef bint begun = mq_channel_order(hub, &order)
    cdef int i
    for i in range(MQ_PUBLISHERS):
        if mq_load_acquire_u64(&hub.publishers[i].pool_uid):
            size += mq_load_relaxed_u64(&hub.publishers[i].bytes)
    for i in range(MQ_LISTENERS):
        if mq_load_acquire_u64(&hub.listeners[i].who.uid):
            mq_snapshot_figures(&hub.listeners[i], &of)
            if begun and mq_identity_liveness(&inquiry, &hub.listeners[i].who, MQ_LISTENER_BYTE + i) != MQ_DEAD:
                mq_snapshot_ahead(&order, &of)
            lost += of.lost
    mq_liveness_probe_end(&inquiry)
    return EndpointCounts(mq_index_ring_tail(&order) - order.capacity if begun else 0, size, lost)


cdef dict pool_files(str name, str in_prefix):
    """Return the bytes of a channel's pools, by uid, those of no row among them."""
    found = {}
    for channel, uid in naming.pools(in_prefix):
        if channel == name:
            try:
                found[uid] = os.lstat(naming.pool_path(name, in_prefix, uid)).st_size
            except FileNotFoundError:  # removed just now
                continue
    return found

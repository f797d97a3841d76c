"""The counters of a channel's publishers and subscribers on the fake backend."""

from __future__ import annotations

import os
import threading

from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelSubscriber
from msgq.impl.fake.channel_cursor import ChannelCursor
from msgq.impl.fake.channel_state import PublisherPool


def make_participant(node: str, alive: bool = True) -> Participant:
    """Return this process as a participant with the name of a node."""
    return Participant(os.getpid(), threading.get_native_id(), 0, node, alive)


def read_publisher_stats(pool: PublisherPool) -> ChannelPublisher:
    """Return the counters of one pool of a publisher."""
    return ChannelPublisher(
        make_participant(pool.node, pool.is_living),
        pool.node,
        len(pool.slots),
        pool.slot_bytes,
        pool.sent,
        pool.bytes,
        pool.refused,
        pool.evicted,
        len(pool.channel.index_ring.find_pool_entries(pool)),
        pool_bytes=None if pool.is_removed else pool.file_bytes,
        left=not pool.is_living,
        superseded=pool.is_superseded,
    )


def read_subscriber_stats(node: str, cursor: ChannelCursor, views_held: int) -> ChannelSubscriber:
    """Return the counters of a subscriber. `lost` includes losses that the next receive will report."""
    lag, lost = cursor.count_unread()
    counts = cursor.position, lag, cursor.received, cursor.lost + lost, cursor.resets, views_held
    return ChannelSubscriber(make_participant(node), node, *counts)

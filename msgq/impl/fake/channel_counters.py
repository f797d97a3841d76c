"""The counters of a channel's publishers and subscribers on the fake backend."""

from __future__ import annotations

import os
import threading

from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelSubscriber
from msgq.impl.fake.channel_cursor import Cursor
from msgq.impl.fake.channel_order import Pool


def participant(node: str, alive: bool = True) -> Participant:
    """Return this process, under the name of a node."""
    return Participant(os.getpid(), threading.get_native_id(), 0, node, alive)


def publisher_stats(pool: Pool) -> ChannelPublisher:
    """Return the counters of one pool of a publisher."""
    return ChannelPublisher(
        participant(pool.node, pool.living),
        pool.node,
        len(pool.slots),
        pool.slot_bytes,
        pool.sent,
        pool.bytes,
        pool.refused,
        pool.evicted,
        len(pool.channel.order.of_pool(pool)),
        pool_bytes=None if pool.removed else pool.size,
        left=not pool.living,
        superseded=pool.superseded,
    )


def subscriber_stats(node: str, cursor: Cursor, views_held: int) -> ChannelSubscriber:
    """Return the counters of a subscriber. `lost` includes what its next receive will report."""
    lag, lost = cursor.count_unread()
    counts = cursor.position, lag, cursor.received, cursor.lost + lost, cursor.resets, views_held
    return ChannelSubscriber(participant(node), node, *counts)

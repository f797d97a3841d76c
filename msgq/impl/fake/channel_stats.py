"""What a channel of the fake backend shows of itself; see `msgq.stats`. No files, and nobody dies."""

from __future__ import annotations

import os
import threading
from typing import cast

from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ViewHolder
from msgq.impl.fake.channel_order import ChannelFile, ChannelState, Pool, Slot
from msgq.impl.fake.channel_subscriber import SubscriberRows


def channel_stats(file: ChannelFile) -> ChannelStats:
    """Return who takes part, and who holds which views."""
    channel = file.channel
    capacity, publishers, subscribers, stamps = file.config
    pools = [pool for pool in channel.rows if pool is not None]
    return ChannelStats(
        channel.name,
        file.prefix,
        kind="broadcast" if channel.name.endswith(":broadcast") else "mailbox" if ":mbx:" in channel.name else "pubsub",
        capacity=capacity,
        max_publishers=publishers,
        max_subscribers=subscribers,
        stamps=stamps,
        messages=file.messages,
        creator=file.creator,
        created_ns=file.created_ns,
        schema=file.schema,
        pool_bytes=sum(pool.size for pool in pools),
        publishers=tuple(map(_publisher, pools)),
        subscribers=_subscribers(channel),
        viewers=tuple(_viewer(channel, row) for row, name in enumerate(channel.viewers) if name is not None),
        opened=None,
    )


def _participant(node: str, alive: bool = True) -> Participant:
    return Participant(os.getpid(), threading.get_native_id(), 0, node, alive)


def _publisher(pool: Pool) -> ChannelPublisher:
    return ChannelPublisher(
        _participant(pool.node, pool.living),
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


def _subscribers(channel: ChannelState) -> tuple[ChannelSubscriber, ...]:
    """Return those that are listed."""
    subscribers = []
    for member in _members(channel):
        cursor = member.cursor
        lag, lost = cursor.count_unread()
        process, lost = _participant(member.node), cursor.lost + lost
        counts = cursor.position, lag, cursor.received, lost, cursor.resets, member.views_held
        subscribers.append(ChannelSubscriber(process, member.node, *counts))
    return tuple(subscribers)


def _members(channel: ChannelState) -> list[SubscriberRows]:
    return [cast("SubscriberRows", member) for member in channel.subscribers if member is not None]


def _viewer(channel: ChannelState, row: int) -> ViewHolder:
    name = channel.viewers[row] or ""
    held: list[tuple[Slot, bool]] = []  # and whether it is outdated
    for pool in channel.rows:
        if pool is not None and not pool.removed:
            in_order = {entry.slot for entry in channel.order.of_pool(pool)}
            held += [(slot, i not in in_order) for i, slot in enumerate(pool.slots) if row in slot.holders]
    outdated = [slot.publish_time for slot, is_outdated in held if is_outdated]
    nodes = [member.node for member in _members(channel) if member.viewer == row]
    oldest = min((time for time in outdated if time), default=None)
    return ViewHolder(_participant(name), "".join(nodes), len(held), len(outdated), oldest)

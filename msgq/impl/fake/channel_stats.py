"""What a channel of the fake backend shows of itself; see `msgq.stats`. No files, and nobody dies."""

from __future__ import annotations

from typing import cast

from msgq.common.stats.channel import ChannelStats, ChannelSubscriber, ViewHolder
from msgq.impl.fake.channel_counters import participant, publisher_stats, subscriber_stats
from msgq.impl.fake.channel_order import ChannelFile, ChannelState, Slot
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
        publishers=tuple(map(publisher_stats, pools)),
        subscribers=_subscribers(channel),
        viewers=tuple(_viewer(channel, row) for row, name in enumerate(channel.viewers) if name is not None),
        opened=None,
    )


def _subscribers(channel: ChannelState) -> tuple[ChannelSubscriber, ...]:
    """Return those that are listed."""
    subscribers = []
    for member in _members(channel):
        subscribers.append(subscriber_stats(member.node, member.cursor, member.views_held))
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
    return ViewHolder(participant(name), "".join(nodes), len(held), len(outdated), oldest)

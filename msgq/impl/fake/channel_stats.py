"""Statistics of a channel on the fake backend; see `msgq.stats`. Files do not exist, and participants do not die."""

from __future__ import annotations

from typing import cast

from msgq.common.stats.channel import ChannelStats, ChannelSubscriber, ViewHolder
from msgq.impl.fake.channel_counters import make_participant, read_publisher_stats, read_subscriber_stats
from msgq.impl.fake.channel_state import ChannelFile, ChannelState, PoolSlot
from msgq.impl.fake.channel_subscriber import SubscriberRows


def read_channel_stats(file: ChannelFile) -> ChannelStats:
    """Return the participants and the held views."""
    channel = file.channel
    capacity, publishers, subscribers, stamps = file.config
    pools = [pool for pool in channel.publisher_pools if pool is not None]
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
        pool_bytes=sum(pool.file_bytes for pool in pools),
        publishers=tuple(map(read_publisher_stats, pools)),
        subscribers=_read_subscribers(channel),
        viewers=tuple(
            _read_view_holder(channel, row) for row, name in enumerate(channel.viewer_names) if name is not None
        ),
        opened=None,
    )


def _read_subscribers(channel: ChannelState) -> tuple[ChannelSubscriber, ...]:
    """Return the registered subscribers."""
    subscribers = []
    for subscriber in _find_registered_subscribers(channel):
        subscribers.append(read_subscriber_stats(subscriber.node, subscriber.cursor, subscriber.views_held))
    return tuple(subscribers)


def _find_registered_subscribers(channel: ChannelState) -> list[SubscriberRows]:
    return [
        cast("SubscriberRows", subscriber) for subscriber in channel.registered_subscribers if subscriber is not None
    ]


def _read_view_holder(channel: ChannelState, row: int) -> ViewHolder:
    name = channel.viewer_names[row] or ""
    held: list[tuple[PoolSlot, bool]] = []  # and whether it is outdated
    for pool in channel.publisher_pools:
        if pool is not None and not pool.is_removed:
            in_order = {entry.slot for entry in channel.index_ring.find_pool_entries(pool)}
            held += [(slot, i not in in_order) for i, slot in enumerate(pool.slots) if row in slot.viewer_rows]
    outdated = [slot.publish_time for slot, is_outdated in held if is_outdated]
    nodes = [subscriber.node for subscriber in _find_registered_subscribers(channel) if subscriber.viewer_row == row]
    oldest = min((time for time in outdated if time), default=None)
    return ViewHolder(make_participant(name), "".join(nodes), len(held), len(outdated), oldest)

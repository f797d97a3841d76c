"""What a channel of the fake backend shows of itself; see `msgq.stats`. No files, and nobody dies."""

from __future__ import annotations

import os
import threading
from typing import cast

from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ChannelViewer
from msgq.impl.fake.channel_order import Hub, Line, Pool, Slot
from msgq.impl.fake.channel_subscriber import Membership


def channel_stats(hub: Hub) -> ChannelStats:
    """Return who takes part, and who holds which views."""
    line = hub.line
    capacity, publishers, subscribers, stamps = hub.geometry
    pools = [pool for pool in line.rows if pool is not None]
    return ChannelStats(
        line.name,
        hub.prefix,
        kind="broadcast" if line.name.endswith(":broadcast") else "mailbox" if ":mbx:" in line.name else "pubsub",
        capacity=capacity,
        max_publishers=publishers,
        max_subscribers=subscribers,
        stamps=stamps,
        messages=hub.messages,
        creator=hub.creator,
        created_ns=hub.created_ns,
        schema=hub.schema,
        pool_bytes=sum(pool.size for pool in pools),
        publishers=tuple(map(_publisher, pools)),
        subscribers=_subscribers(line),
        viewers=tuple(_viewer(line, row) for row, name in enumerate(line.viewers) if name is not None),
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
        pool.withdrawn,
        len(pool.line.order.of_pool(pool)),
        pool_bytes=None if pool.removed else pool.size,
        left=not pool.living,
        superseded=pool.superseded,
    )


def _subscribers(line: Line) -> tuple[ChannelSubscriber, ...]:
    """Return those that are listed."""
    found = []
    for member in _members(line):
        cursor = member.cursor
        lag, lost = cursor.ahead()
        who, lost = _participant(member.node), cursor.lost + lost
        counts = cursor.position, lag, cursor.received, lost, cursor.resets, member.held
        found.append(ChannelSubscriber(who, member.node, *counts))
    return tuple(found)


def _members(line: Line) -> list[Membership]:
    return [cast("Membership", member) for member in line.listeners if member is not None]


def _viewer(line: Line, row: int) -> ChannelViewer:
    name = line.viewers[row] or ""
    held: list[tuple[Slot, bool]] = []  # and whether it is outdated
    for pool in line.rows:
        if pool is not None and not pool.removed:
            there = {entry.slot for entry in line.order.of_pool(pool)}
            held += [(slot, i not in there) for i, slot in enumerate(pool.slots) if row in slot.holders]
    outdated = [slot.publish_time for slot, gone in held if gone]
    nodes = [member.node for member in _members(line) if member.viewer == row]
    oldest = min((time for time in outdated if time), default=None)
    return ChannelViewer(_participant(name), "".join(nodes), len(held), len(outdated), oldest)

"""Removal of unused channels, and of files that dead processes left.

A channel is in use if a living publisher, subscriber or viewer is registered, or if a living process has it open. The
removal holds the lock that opening processes need, so a later open creates another channel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgq.channel.names import KIND
from msgq.common import shm_paths
from msgq.common.naming import CHANNEL_NAME_PREFIX, parse_events_channel
from msgq.common.stats.channel import ChannelStats, ViewHolder
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.common.units import NS_PER_S
from msgq.errors import EndpointNameError, SegmentError
from msgq.impl import backend as backends
from msgq.impl.base.core import is_trusted
from msgq.impl.base.files import read_file_status
from msgq.impl.channel.core import open_channel_file, remove_pool_without_channel
from msgq.impl.channel.pool_files import list_pools
from msgq.kinds import get_kind
from msgq.kinds.cleanup import (
    ERROR,
    WARNING,
    EndpointIssue,
    EndpointUsers,
    FileRemoval,
    KindCleanup,
    count_by_role,
    describe_removals,
    remove_directories,
)
from msgq.kinds.removal import EndpointRemover, find_users
from msgq.kinds.snapshots import list_inodes, read, read_all

LONG_HELD_VIEW_S = 10.0  # a view of a message that has left the order is then worth a note
_DEAD_PARTICIPANT_HINT = (
    "harmless: new participants reuse the rows of dead participants; "
    "--fix removes the channel if only dead processes use it"
)
PUBLISHERS_MAX, VIEWERS_MAX = 63, 64  # rows of a channel


def list_users(channel: ChannelStats) -> EndpointUsers:
    """Return the users of a channel. Passive subscribers leave no trace, and are not affected by a removal."""
    living, unknown = find_users(participant for _, participant in channel.participants)
    opened = ("programs that have it open",)
    if not living and channel.opened:
        living = opened
    return EndpointUsers(living, unknown + opened if channel.opened is None else unknown)


CHANNELS = EndpointRemover(
    kind=KIND,
    remove=lambda name, prefix, is_unused: open_channel_file(name, prefix).unlink(is_unused),  # passive, so no user
    list_users=list_users,
)


def remove_dead_channels(prefix: str) -> Iterator[FileRemoval]:
    """Remove channels that only dead processes use, and unreachable pools. Channels with possible users stay.

    Yields removed files, and files that could not be removed. Channels without any registration stay, and so do the
    events channels of existing queues.
    """
    only_dead = [
        channel.name
        for channel in read_all(KIND, prefix)
        if any(participant.alive is False for _, participant in channel.participants)
    ]
    queues = list_inodes(get_kind("queue"), prefix)
    yield from CHANNELS.remove_dead([name for name in only_dead if parse_events_channel(name) not in queues], prefix)
    yield from remove_unreachable_pools(prefix)


def find_orphaned_pools(channel: ChannelStats) -> dict[str, str]:
    """Return the paths of a channel's unreachable pools, each with the reason why it is not needed."""
    lost = dict.fromkeys(channel.orphans, "pool without a publisher")
    for publisher in channel.publishers:
        if publisher.participant.alive is False and not publisher.messages:
            state = "has left" if publisher.left else "is dead"
            owner = f"publisher (process {publisher.participant.pid}) {state}"
            lost[publisher.path] = f"pool without messages, whose {owner}"
    return lost


def remove_unreachable_pools(prefix: str, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove the unreachable pools of a prefix, and empty directories of channels.

    Args:
        remove: False: only report what would be removed.
    """
    existing = list_inodes(KIND, prefix)
    lost = [(name, uid) for name, uid in list_pools(prefix) if name not in existing]
    for name in existing:
        with contextlib.suppress(SegmentError, EndpointNameError):  # damaged, another user's, or just removed
            yield from _remove_pools_of_channel(name, prefix, remove)
    for name, uid in lost:
        path = shm_paths.pool_path(name, prefix, uid)
        status = read_file_status(path)  # None: another process has removed it
        try:
            if status is None or not is_trusted(status.owner):
                continue
            if not remove or remove_pool_without_channel(name, prefix, uid):
                yield FileRemoval(CHANNEL_NAME_PREFIX + name, prefix, path, status.bytes, "pool of a removed channel")
        except SegmentError as error:
            yield FileRemoval(CHANNEL_NAME_PREFIX + name, prefix, path, 0, str(error), removed=False)
    if remove and shm_paths.has_directories(prefix):
        remove_directories(*shm_paths.channel_directories(prefix))


def _remove_pools_of_channel(name: str, prefix: str, remove: bool) -> Iterator[FileRemoval]:
    channel = read(KIND, name, prefix)
    lost = find_orphaned_pools(channel)
    sizes = {path: status.bytes for path in lost if (status := read_file_status(path)) is not None}
    if lost and remove:
        lost = find_orphaned_pools(open_channel_file(name, prefix, writable=True).remove_unreachable_pools())
    for path, reason in lost.items():
        yield FileRemoval(CHANNEL_NAME_PREFIX + name, prefix, path, sizes.get(path, 0), reason)


def diagnose(channel: ChannelStats) -> list[EndpointIssue]:
    """Return the issues of a channel: dead participants, unreachable pools, full tables, and views held for long."""
    name = CHANNEL_NAME_PREFIX + channel.name
    dead = count_by_role(
        (role, participant) for role, participant in channel.participants if participant.alive is False
    )
    issues = [f"{name}: {participant} ({_DEAD_PARTICIPANT_HINT})" for participant in dead.values()]
    pools = [f"{path}, {reason}" for path, reason in find_orphaned_pools(channel).items()]
    if pools:
        issues.append(
            f"{name} has unused pools: {join_first_texts(pools, separator='; ')}; to remove them, run `msgq clean`"
        )
    kept = [text for view_holder in channel.viewers if (text := _describe_long_view(view_holder))]
    if kept:
        issues.append(f"{name}: {join_first_texts(kept)}; the publishers cannot reuse these slots")
    full = _describe_full_tables(channel)
    return [
        *(EndpointIssue(text, severity=ERROR) for text in full),
        *(EndpointIssue(text, severity=WARNING) for text in issues),
    ]


def _describe_long_view(viewer: ViewHolder) -> str:
    """Return a text if a subscriber keeps views of old messages for long; else ""."""
    kept_s = 0.0 if viewer.oldest_ns is None else (backends.time_ns() - viewer.oldest_ns) / NS_PER_S
    if not viewer.outdated or kept_s <= LONG_HELD_VIEW_S:
        return ""
    holder = f"{viewer.node or 'a subscriber'} {viewer.participant.pid}"
    return f"{holder} has held {format_count_noun(viewer.outdated, 'view')} of old messages for up to {kept_s:.0f} s"


def _describe_full_tables(channel: ChannelStats) -> list[str]:
    """Return texts about full tables, which prevent further participants from joining."""
    name, full = CHANNEL_NAME_PREFIX + channel.name, []
    active = [row for row in channel.publishers if row.participant.alive and not row.superseded]
    if len(active) >= (channel.max_publishers or PUBLISHERS_MAX):
        full.append(f"{name} has {format_count_noun(len(active), 'publisher')}, its limit")
    living = [row for row in channel.subscribers if row.participant.alive]
    if channel.max_subscribers is not None and channel.max_subscribers > 1 and len(living) >= channel.max_subscribers:
        full.append(f"{name} has {format_count_noun(len(living), 'subscriber')}, its limit")
    if sum(row.participant.alive is not False for row in channel.viewers) >= VIEWERS_MAX:
        full.append(f"{name} has {VIEWERS_MAX} subscribers with views, its limit")
    return full


class _ChannelCleanup(KindCleanup):
    def find_orphans(self, prefix: str) -> list[EndpointIssue]:
        """Return the pools of a prefix without a channel, as warnings. They block no process."""
        existing = list_inodes(KIND, prefix)
        paths = [shm_paths.pool_path(name, prefix, uid) for name, uid in list_pools(prefix) if name not in existing]
        if not paths:
            return []
        text = (
            f"{paths[0]} is a pool of a removed channel; to remove the pool"
            if len(paths) == 1
            else f"{join_first_texts(paths)} are pools of removed channels; to remove the pools"
        )
        return [EndpointIssue(f"{text}, run `msgq clean`", severity=WARNING)]


CLEANUP = _ChannelCleanup(
    remove_unused=CHANNELS.remove_unused,
    remove_orphans=remove_unreachable_pools,
    diagnose=diagnose,
    repair=lambda prefix: describe_removals(remove_dead_channels(prefix)),
)

"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

import os

from msgq import naming
from msgq.errors import EndpointNameError, SegmentError
from msgq.figures import (
    ChannelPublisher,
    ChannelStats,
    ChannelSubscriber,
    ChannelViewer,
    Distribution,
    MeterReading,
    Participant,
    PublisherStats,
    QueueHandleInfo,
    QueueStats,
    SubscriberInfo,
    SubscriberStats,
    TopicCounts,
    TopicStats,
)

__all__ = [
    "ChannelPublisher",
    "ChannelStats",
    "ChannelSubscriber",
    "ChannelViewer",
    "Distribution",
    "MeterReading",
    "Participant",
    "PublisherStats",
    "QueueHandleInfo",
    "QueueStats",
    "SubscriberInfo",
    "SubscriberStats",
    "TopicCounts",
    "TopicStats",
    "channel",
    "channel_inodes",
    "channels",
    "queue",
    "queue_inodes",
    "queues",
    "topic",
    "topic_inodes",
    "topics",
]


def topic(endpoint: str | bytes, prefix: str | None = None) -> TopicStats:
    """Return a snapshot of one topic.

    Raises
    ------
    SegmentError : there is no such topic, or its files cannot be read.
    """
    from msgq.impl.ring.snapshot import TopicWatch  # late: few programs look at topics

    name = naming.endpoint_name(endpoint)
    where = naming.checked_prefix(prefix)
    return TopicWatch(name, where).stats()


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of every topic, sorted by name.

    Parameters
    ----------
    prefix : topics of this prefix; None: of the one in force, "": of none.

    Files that are no topics are left out; what cannot be read (another user's) as well.
    """
    where = naming.checked_prefix(prefix)
    snapshots = []
    for name in topic_inodes(where):
        try:
            snapshots.append(topic(name, where))
        except (SegmentError, EndpointNameError):
            continue
    return snapshots


def topic_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be topics, sorted, each with the inode of its ring: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(*naming.topic_files(naming.checked_prefix(prefix)))


def channel(name: str | bytes, prefix: str | None = None) -> ChannelStats:
    """Return a snapshot of one channel, whichever backend is chosen: of its files.

    Parameters
    ----------
    name : of the channel; those of broadcasts and mailboxes have a ":".
    prefix : as in `topics`.

    Raises
    ------
    SegmentError : there is no such channel, or its files cannot be read.
    """
    from msgq.impl.channel.hub import open_hub  # late: few programs look at channels

    stats: ChannelStats = open_hub(
        naming.channel_name(name), naming.checked_prefix(prefix), False, None, None, False, ""
    ).stats()
    return stats


def channels(prefix: str | None = None) -> list[ChannelStats]:
    """Return a snapshot of every channel, sorted by name; broadcasts and mailboxes are channels, too.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are no channels are left out; what cannot be read (another user's) as well.
    """
    where = naming.checked_prefix(prefix)
    snapshots = []
    for name in channel_inodes(where):
        try:
            snapshots.append(channel(name, where))
        except (SegmentError, EndpointNameError):
            continue
    return snapshots


def channel_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be channels, sorted, each with the inode of its hub: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(*naming.channel_files(naming.checked_prefix(prefix)))


def queue(name: str | bytes, prefix: str | None = None) -> QueueStats:
    """Return a snapshot of one work queue, whichever backend is chosen: of its file.

    Parameters
    ----------
    name : of the queue; a "/" before it is taken off.
    prefix : as in `topics`.

    Raises
    ------
    SegmentError : there is no such queue, or its file cannot be read.
    """
    from msgq.impl.workqueue.snapshot import queue_stats  # late: few programs look at queues

    return queue_stats(naming.queue_name(name), naming.checked_prefix(prefix))


def queues(prefix: str | None = None) -> list[QueueStats]:
    """Return a snapshot of every work queue, sorted by name.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are no queues are left out; what cannot be read (another user's) as well.
    """
    where = naming.checked_prefix(prefix)
    snapshots = []
    for name in queue_inodes(where):
        try:
            snapshots.append(queue(name, where))
        except (SegmentError, EndpointNameError):
            continue
    return snapshots


def queue_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be work queues, sorted, each with the inode of its file: another one when made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(*naming.queue_files(naming.checked_prefix(prefix)))


def _inodes(directory: str, start: str) -> dict[str, int]:
    try:
        files = [(entry.name, entry.inode()) for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last: of a user who does not share it
        return {}
    return {name[len(start) :]: inode for name, inode in sorted(files) if name.startswith(start) and name != start}

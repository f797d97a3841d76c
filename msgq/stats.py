"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

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
from msgq.record_figures import RecordKeyInfo, RecordStats, RecordWriterInfo

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
    "RecordKeyInfo",
    "RecordStats",
    "RecordWriterInfo",
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
    "record",
    "record_inodes",
    "records",
    "topic",
    "topic_inodes",
    "topics",
]

_Stats = TypeVar("_Stats")


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
    return _each(topic_inodes, topic, prefix)


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
    return _each(channel_inodes, channel, prefix)


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
    return _each(queue_inodes, queue, prefix)


def queue_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be work queues, sorted, each with the inode of its file: another one when made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(*naming.queue_files(naming.checked_prefix(prefix)))


def record(name: str | bytes, prefix: str | None = None) -> RecordStats:
    """Return a snapshot of one vector or board, whichever backend is chosen: of its file.

    Parameters
    ----------
    name : of the vector or board.
    prefix : as in `topics`.

    Raises
    ------
    SegmentError : there is no such vector or board, or its file cannot be read.
    """
    from msgq.impl.records.snapshot import record_stats  # late: few programs look at records

    return record_stats(naming.records_name(name), naming.checked_prefix(prefix))


def records(prefix: str | None = None) -> list[RecordStats]:
    """Return a snapshot of every vector and board, sorted by name.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are none are left out; what cannot be read (another user's) as well. All elements are looked at: of a
    vector with millions of them that takes some tenths of a second.
    """
    return _each(record_inodes, record, prefix)


def record_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be vectors or boards, sorted, each with the inode of its file, as `queue_inodes`.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(*naming.records_files(naming.checked_prefix(prefix)))


def _each(
    inodes: Callable[[str | None], Iterable[str]], read: Callable[[str, str | None], _Stats], prefix: str | None
) -> list[_Stats]:
    """Return a snapshot of everything of a kind that is there and can be read."""
    where = naming.checked_prefix(prefix)
    snapshots = []
    for name in inodes(where):
        with contextlib.suppress(SegmentError, EndpointNameError):
            snapshots.append(read(name, where))
    return snapshots


def _inodes(directory: str, start: str) -> dict[str, int]:
    try:
        files = [(entry.name, entry.inode()) for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last: of a user who does not share it
        return {}
    return {name[len(start) :]: inode for name, inode in sorted(files) if name.startswith(start) and name != start}

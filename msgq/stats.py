"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

from msgq.common import naming, settings
from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ViewHolder
from msgq.common.stats.endpoint import EndpointCounts, EndpointStats
from msgq.common.stats.meter import Distribution, MeterReading
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.common.stats.topic import PublisherStats, SubscriberInfo, SubscriberStats, TopicCounts, TopicStats
from msgq.common.stats.workqueue import QueueHandleInfo, QueueMessage, QueueStats
from msgq.kinds import get_kind
from msgq.kinds.snapshots import endpoint, endpoint_inodes, endpoints, list_inodes, read, read_all

__all__ = [
    "ChannelPublisher",
    "ChannelStats",
    "ChannelSubscriber",
    "Distribution",
    "EndpointCounts",
    "EndpointStats",
    "MeterReading",
    "Participant",
    "PublisherStats",
    "QueueHandleInfo",
    "QueueMessage",
    "QueueStats",
    "RecordKeyInfo",
    "RecordStats",
    "RecordWriterInfo",
    "SubscriberInfo",
    "SubscriberStats",
    "TopicCounts",
    "TopicStats",
    "ViewHolder",
    "channel",
    "channel_inodes",
    "channels",
    "endpoint",
    "endpoint_inodes",
    "endpoints",
    "queue",
    "queue_inodes",
    "queue_messages",
    "queues",
    "record",
    "record_inodes",
    "records",
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
    stats: TopicStats = read(get_kind("topic"), endpoint, prefix)
    return stats


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of every topic, sorted by name.

    Files of other formats, and files that this user may not read, are left out.

    Parameters
    ----------
    prefix : topics of this prefix; None: of the one in force, "": of none.
    """
    return read_all(get_kind("topic"), prefix)


def topic_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be topics, sorted, each with the inode of its ring: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return list_inodes(get_kind("topic"), prefix)


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
    stats: ChannelStats = read(get_kind("channel"), name, prefix)
    return stats


def channels(prefix: str | None = None) -> list[ChannelStats]:
    """Return a snapshot of every channel, sorted by name; broadcasts and mailboxes are channels, too.

    Files of other formats, and files that this user may not read, are left out.

    Parameters
    ----------
    prefix : as in `topics`.
    """
    return read_all(get_kind("channel"), prefix)


def channel_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be channels, sorted, each with the inode of its hub: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return list_inodes(get_kind("channel"), prefix)


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
    stats: QueueStats = read(get_kind("queue"), name, prefix)
    return stats


def queues(prefix: str | None = None) -> list[QueueStats]:
    """Return a snapshot of every work queue, sorted by name.

    Files of other formats, and files that this user may not read, are left out.

    Parameters
    ----------
    prefix : as in `topics`.
    """
    return read_all(get_kind("queue"), prefix)


def queue_messages(name: str | bytes, prefix: str | None = None, limit: int | None = None) -> list[QueueMessage]:
    """Return copies of the messages that wait in a work queue, those first that would be received first. They stay.

    Nobody notices: the queue's file is mapped read-only, and no handle is entered, unlike by `MessageQueue.peek`.

    Parameters
    ----------
    name, prefix : as in `queue`.
    limit : at most so many; None: all.

    Returns
    -------
    The messages, each of them whole, without those that somebody took meanwhile. All were there at some time during the
    call, not necessarily at one.

    Raises
    ------
    SegmentError : there is no such queue, or its file cannot be read.
    InvalidValueError : a negative `limit`.
    """
    from msgq.impl.workqueue.core import queue_messages  # late, as above

    return queue_messages(naming.validate_queue_name(name), settings.resolve_prefix(prefix), limit)


def queue_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be work queues, sorted, each with the inode of its file: another one when made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return list_inodes(get_kind("queue"), prefix)


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
    stats: RecordStats = read(get_kind("records"), name, prefix)
    return stats


def records(prefix: str | None = None) -> list[RecordStats]:
    """Return a snapshot of every vector and board, sorted by name.

    Files of other formats, and files that this user may not read, are left out. All elements are read: a vector with
    millions of elements takes some tenths of a second.

    Parameters
    ----------
    prefix : as in `topics`.
    """
    return read_all(get_kind("records"), prefix)


def record_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be vectors or boards, sorted, each with the inode of its file, as `queue_inodes`.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return list_inodes(get_kind("records"), prefix)

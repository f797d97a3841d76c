"""Statistics of endpoints: read-only snapshots. Reading disturbs no process and occupies no subscriber slot."""

from __future__ import annotations

from msgq.common import naming
from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ViewHolder
from msgq.common.stats.endpoint import EndpointCounts, EndpointStats
from msgq.common.stats.meter import Distribution, MeterReading
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.common.stats.topic import PublisherStats, SubscriberInfo, SubscriberStats, TopicCounts, TopicStats
from msgq.common.stats.workqueue import QueueHandleInfo, QueueMessage, QueueStats
from msgq.impl.backend import resolve_prefix
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

    Args:
        endpoint: name of the topic.
        prefix: prefix of the topic; None: the current prefix, "": no prefix.

    Raises:
        SegmentError: the topic does not exist, or its files cannot be read.
    """
    stats: TopicStats = read(get_kind("topic"), endpoint, prefix)
    return stats


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of each topic, sorted by name.

    Skips files of other formats, and files that this user may not read.

    Args:
        prefix: prefix of the topics; None: the current prefix, "": no prefix.
    """
    return read_all(get_kind("topic"), prefix)


def topic_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be topics, sorted, and the inode numbers of their rings.

    Opens no file. A new ring of the same name has another inode number.

    Args:
        prefix: prefix as in `topics`.
    """
    return list_inodes(get_kind("topic"), prefix)


def channel(name: str | bytes, prefix: str | None = None) -> ChannelStats:
    """Return a snapshot of one channel. Reads the files, regardless of the chosen backend.

    Args:
        name: name of the channel. Names of broadcasts and mailboxes contain a ":".
        prefix: prefix as in `topics`.

    Raises:
        SegmentError: the channel does not exist, or its files cannot be read.
    """
    stats: ChannelStats = read(get_kind("channel"), name, prefix)
    return stats


def channels(prefix: str | None = None) -> list[ChannelStats]:
    """Return a snapshot of each channel, sorted by name. Includes broadcasts and mailboxes.

    Skips files of other formats, and files that this user may not read.

    Args:
        prefix: prefix as in `topics`.
    """
    return read_all(get_kind("channel"), prefix)


def channel_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be channels, sorted, and the inode numbers of their channel files.

    Opens no file. A new channel of the same name has another inode number.

    Args:
        prefix: prefix as in `topics`.
    """
    return list_inodes(get_kind("channel"), prefix)


def queue(name: str | bytes, prefix: str | None = None) -> QueueStats:
    """Return a snapshot of one work queue. Reads the file, regardless of the chosen backend.

    Args:
        name: name of the queue; a leading "/" is removed.
        prefix: prefix as in `topics`.

    Raises:
        SegmentError: the queue does not exist, or its file cannot be read.
    """
    stats: QueueStats = read(get_kind("queue"), name, prefix)
    return stats


def queues(prefix: str | None = None) -> list[QueueStats]:
    """Return a snapshot of each work queue, sorted by name.

    Skips files of other formats, and files that this user may not read.

    Args:
        prefix: prefix as in `topics`.
    """
    return read_all(get_kind("queue"), prefix)


def queue_messages(name: str | bytes, prefix: str | None = None, limit: int | None = None) -> list[QueueMessage]:
    """Return copies of the waiting messages of a work queue, in the order of delivery. The messages stay in the queue.

    The queue's file is mapped read-only. Unlike `MessageQueue.peek`, this call registers no handle.

    Args:
        name: name as in `queue`.
        prefix: prefix as in `queue`.
        limit: maximum number of messages; None: all.

    Returns:
        Complete messages, without messages that were taken during the call. Each message waited at some time during the
        call, not necessarily all at the same time.

    Raises:
        SegmentError: the queue does not exist, or its file cannot be read.
        InvalidValueError: `limit` is negative.
    """
    from msgq.impl.workqueue.core import queue_messages  # late, as above

    return queue_messages(naming.validate_queue_name(name), resolve_prefix(prefix), limit)


def queue_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be work queues, sorted, and the inode numbers of their files.

    Opens no file. A new queue of the same name has another inode number.

    Args:
        prefix: prefix as in `topics`.
    """
    return list_inodes(get_kind("queue"), prefix)


def record(name: str | bytes, prefix: str | None = None) -> RecordStats:
    """Return a snapshot of one vector or board. Reads the file, regardless of the chosen backend.

    Args:
        name: name of the vector or board.
        prefix: prefix as in `topics`.

    Raises:
        SegmentError: the vector or board does not exist, or its file cannot be read.
    """
    stats: RecordStats = read(get_kind("records"), name, prefix)
    return stats


def records(prefix: str | None = None) -> list[RecordStats]:
    """Return a snapshot of each vector and board, sorted by name.

    Skips files of other formats, and files that this user may not read. The call reads all elements: a vector with
    millions of elements takes some tenths of a second.

    Args:
        prefix: prefix as in `topics`.
    """
    return read_all(get_kind("records"), prefix)


def record_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be vectors or boards, sorted, and the inode numbers of their files.

    Opens no file. New records of the same name have another inode number.

    Args:
        prefix: prefix as in `topics`.
    """
    return list_inodes(get_kind("records"), prefix)

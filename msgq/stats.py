"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from msgq.common import naming
from msgq.common.stats import Participant
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ViewHolder
from msgq.common.stats.endpoint import EndpointCounts, EndpointStats
from msgq.common.stats.meter import Distribution, MeterReading
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.common.stats.topic import PublisherStats, SubscriberInfo, SubscriberStats, TopicCounts, TopicStats
from msgq.common.stats.workqueue import QueueHandleInfo, QueueMessage, QueueStats
from msgq.errors import EndpointNameError, SegmentError
from msgq.kinds import Kind, announced_kind, get_kind, kind_of, stored_kinds

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
    stats: TopicStats = _read(get_kind("topic"), endpoint, prefix)
    return stats


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of every topic, sorted by name.

    Parameters
    ----------
    prefix : topics of this prefix; None: of the one in force, "": of none.

    Files that are no topics are left out; what cannot be read (another user's) as well.
    """
    return _read_all(get_kind("topic"), prefix)


def topic_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be topics, sorted, each with the inode of its ring: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(get_kind("topic"), prefix)


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
    stats: ChannelStats = _read(get_kind("channel"), name, prefix)
    return stats


def channels(prefix: str | None = None) -> list[ChannelStats]:
    """Return a snapshot of every channel, sorted by name; broadcasts and mailboxes are channels, too.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are no channels are left out; what cannot be read (another user's) as well.
    """
    return _read_all(get_kind("channel"), prefix)


def channel_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be channels, sorted, each with the inode of its hub: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(get_kind("channel"), prefix)


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
    stats: QueueStats = _read(get_kind("queue"), name, prefix)
    return stats


def queues(prefix: str | None = None) -> list[QueueStats]:
    """Return a snapshot of every work queue, sorted by name.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are no queues are left out; what cannot be read (another user's) as well.
    """
    return _read_all(get_kind("queue"), prefix)


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

    return queue_messages(naming.queue_name(name), naming.resolve_prefix(prefix), limit)


def queue_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be work queues, sorted, each with the inode of its file: another one when made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(get_kind("queue"), prefix)


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
    stats: RecordStats = _read(get_kind("records"), name, prefix)
    return stats


def records(prefix: str | None = None) -> list[RecordStats]:
    """Return a snapshot of every vector and board, sorted by name.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are none are left out; what cannot be read (another user's) as well. All elements are looked at: of a
    vector with millions of them that takes some tenths of a second.
    """
    return _read_all(get_kind("records"), prefix)


def record_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be vectors or boards, sorted, each with the inode of its file, as `queue_inodes`.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return _inodes(get_kind("records"), prefix)


def endpoint(name: str | bytes, prefix: str | None = None) -> EndpointStats:
    """Return a snapshot of one endpoint of whatever kind.

    Parameters
    ----------
    name : with its mark: `channel/NAME`, `queue/NAME`, `records/NAME`; without one it is a topic's.
    prefix : as in `topics`.

    Raises
    ------
    EndpointNameError : no endpoint can be called so.
    SegmentError : there is no such endpoint, or its files cannot be read.
    """
    text = name if isinstance(name, str) else name.decode(errors="surrogateescape")
    kind = kind_of(text)
    return _summarize(kind, kind.bare_name(text), prefix)


def endpoints(prefix: str | None = None) -> list[EndpointStats]:
    """Return a snapshot of every endpoint, of all kinds: topics first, then channels, records, queues; sorted in each.

    Parameters
    ----------
    prefix : as in `topics`.

    Files that are no endpoints are left out; what cannot be read (another user's) as well. It takes as long as
    `topics`, `channels`, `records` and `queues` together.
    """
    where = naming.resolve_prefix(prefix)
    snapshots = []
    for kind in stored_kinds():
        for name in _inodes(kind, where):
            with contextlib.suppress(SegmentError, EndpointNameError):
                snapshots.append(_summarize(kind, name, where))
    return snapshots


def endpoint_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be endpoints, of all kinds, with their marks, in the order of `endpoints`.

    Each comes with the inode of its file: of a topic its ring, of a channel its hub.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    return {kind.endpoint(name): inode for kind in stored_kinds() for name, inode in _inodes(kind, prefix).items()}


def _read(kind: Kind, name: str | bytes, prefix: str | None) -> Any:
    """Return the statistics of an endpoint, as the dataclass of its kind."""
    return kind.stats.watch(kind.validate(name), naming.resolve_prefix(prefix)).stats()


def _summarize(kind: Kind, bare_name: str, prefix: str | None) -> EndpointStats:
    stats = _read(kind, bare_name, prefix)
    endpoint = kind.endpoint(kind.validate(bare_name))
    size, messages, lost = kind.stats.totals(stats)
    figures = stats.path, size, stats.participants, messages, lost, stats.schema, stats.created_ns
    return EndpointStats(announced_kind(endpoint).name, endpoint, *figures, stats)


def _read_all(kind: Kind, prefix: str | None) -> list[Any]:
    """Return the statistics of all endpoints of a kind that can be read."""
    where = naming.resolve_prefix(prefix)
    snapshots = []
    for name in _inodes(kind, where):
        with contextlib.suppress(SegmentError, EndpointNameError):
            snapshots.append(_read(kind, name, where))
    return snapshots


def _inodes(kind: Kind, prefix: str | None) -> dict[str, int]:
    if kind.files is None:
        return {}
    directory, start = kind.files(naming.resolve_prefix(prefix))
    try:
        files = [(entry.name, entry.inode()) for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last: of a user who does not share it
        return {}
    return {name[len(start) :]: inode for name, inode in sorted(files) if name.startswith(start) and name != start}

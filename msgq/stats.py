"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

import os
from dataclasses import dataclass

from msgq import naming
from msgq.errors import EndpointNameError, SegmentError
from msgq.schema import Schema


@dataclass(frozen=True, slots=True)
class Participant:
    """A process that takes part in a topic.

    Attributes
    ----------
    pid, thread_id : process and thread that connected, in their PID namespace.
    start_time : of the process, clock ticks since boot.
    name : the process's name, at most 15 bytes.
    alive : None when it lives in another PID namespace, so that nobody here can tell.
    """

    pid: int
    thread_id: int
    start_time: int
    name: str
    alive: bool | None


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """Messages and payload bytes published on an endpoint, by this publisher and its forerunners of this library.

    Attributes
    ----------
    messages, bytes : on the ZMQ backend, of this publisher since it connected.
    dropped : messages that a subscriber's full queue had no room for, on the ZMQ backend. Exact with one subscriber;
        with several at least so many, see docs/zmq.md. On the ring subscribers count what they lose, and this is 0.
    """

    endpoint: str
    messages: int
    bytes: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberStats:
    """A subscriber's own count of messages.

    Attributes
    ----------
    received : messages.
    lost : messages; None when unknown, because a stock publisher lapped it.
    resets : how often it was lapped.
    """

    endpoint: str
    received: int
    lost: int | None
    resets: int


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """A subscriber as others see it. `lag_bytes`: how much of the ring it has not read, None when it was lapped."""

    participant: Participant
    received: int
    lost: int | None
    resets: int
    lag_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic, at one moment; each figure is read on its own.

    Attributes
    ----------
    path : of the ring.
    data_bytes : size of its data area.
    publisher : the current one, if it uses this library.
    publisher_kind : "ours", "stock" (or unknown), "none".
    messages, bytes : published by this library so far; None when there is no side segment.
    write_position : cycle and offset, as in the ring's header.
    stock_subscribers : slots held by living threads that this library knows nothing of.
    created_ns : CLOCK_REALTIME; None when there is no side segment.
    """

    endpoint: str
    path: str
    data_bytes: int
    publisher: Participant | None
    publisher_kind: str
    messages: int | None
    bytes: int | None
    write_position: tuple[int, int]
    subscribers: tuple[SubscriberInfo, ...]
    stock_subscribers: int
    schema: Schema | None
    created_ns: int | None


def topic(endpoint: str | bytes, prefix: str | None = None) -> TopicStats:
    """Return a snapshot of one topic.

    Raises
    ------
    SegmentError : there is no such topic, or its files cannot be read.
    """
    from msgq.impl.snapshot import read_topic  # imported late: it imports this module

    name = naming.endpoint_name(endpoint)
    where = naming.checked_prefix(prefix)
    return read_topic(name, where)


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of every topic, sorted by name.

    Parameters
    ----------
    prefix : topics of this prefix; None: of the one in force, "": of none.

    Files that are no topics are left out; what cannot be read (another user's) as well.
    """
    where = naming.checked_prefix(prefix)
    directory, start = naming.topic_files(where)
    found = []
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        if name.startswith(start) and name != start:
            try:
                found.append(topic(name[len(start) :], where))
            except (SegmentError, EndpointNameError):
                continue
    return found

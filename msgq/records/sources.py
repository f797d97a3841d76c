"""What a stage takes messages from: how each kind is asked for the next one, and where its stamps are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from msgq.common import naming
from msgq.impl.base.core import Waitable

Stamps = tuple[int, int]
Taking = tuple[Callable[[Any], Any], Callable[[Any], Stamps] | None]
_STAMPS_STRUCT = struct.Struct("<qq")
STAMP_NAMES = ("publish_time", "origin_time")


class Source(NamedTuple):
    """A source of messages.

    Attributes
    ----------
    endpoint : as `msgq list` has it.
    take : takes the next message, called with a time-out in seconds; None: there was none in time. That of a topic is
        called with False, and has its own time-out. None: `later` tells it.
    stamps : tells when a message was published, and its origin, ns, 0: nobody said; None: the reader, if there is one.
    reader : a subscriber that knows the stamps of the message that it took last.
    later : waits for the first message, and returns `take` and `stamps`; None: there was none in time.
    """

    endpoint: str
    take: Callable[[Any], Any] | None
    stamps: Callable[[Any], Stamps] | None
    reader: Any = None
    later: Callable[[], Taking | None] | None = None


def resolve_source(source: Any, timeout: float | None, backend: ModuleType) -> Source:
    """Return how messages are taken from what was given.

    Raises
    ------
    TypeError : it is no source.
    """
    if hasattr(source, "consume"):  # a queue of records
        tracked = source.dtype.names is not None and source.dtype.names[:2] == STAMP_NAMES
        reader = None if tracked or source.producers == "single" else source._reader
        stamps = _record_stamps if tracked else _stamps_by(reader)
        return Source(source.endpoint, source.receive, stamps, reader)
    if hasattr(source, "receive_view"):  # of a channel
        endpoint = naming.CHANNEL_NAME_PREFIX + source.endpoint
        return Source(endpoint, source.receive, _stamps_by(source), source)
    if hasattr(source, "max_message_size"):  # a work queue
        endpoint = naming.QUEUE_NAME_PREFIX + source.name
        return Source(endpoint, source.receive, _message_stamps)
    if hasattr(source, "changes"):  # a vector
        return Source(source.endpoint, partial(_changes, source), _changes_stamps)
    if hasattr(source, "setTimeout"):  # of a topic
        return _topic(source, timeout, backend)
    raise TypeError(f"{type(source).__name__} is no source of messages: give a queue, a subscriber or a vector")


def _stamps_by(reader: Any) -> Callable[[Any], Stamps] | None:
    """Return what asks a subscriber for the stamps of its last message; None: the round asks it by itself, in C."""
    if reader is None:
        return _none
    return None if isinstance(reader, Waitable) else lambda _message: read_stamps(reader.last)


def _none(_message: Any) -> Stamps:
    return 0, 0


def _record_stamps(record: Any) -> Stamps:
    return _STAMPS_STRUCT.unpack_from(record)


def _message_stamps(message: Any) -> Stamps:
    return message.sent_time, message.origin_time


def _changes(vector: Any, timeout: float | None) -> Any:
    """Take what changed; None: nothing did in time."""
    return vector.changes() if vector.wait(timeout) else None


def _changes_stamps(changes: Any) -> Stamps:
    """The newest write's time; a vector does not keep what its values come from, their fields may."""
    return int(changes.times.max()), 0


def _topic(sub: Any, timeout: float | None, backend: ModuleType) -> Source:
    """Return how a topic's messages are taken. Whether it is tracked is known when there is one, for good."""
    if timeout is not None:
        sub.setTimeout(timeout * 1000)

    def choose_take() -> Taking:
        return (sub.receive_tracked, read_stamps) if sub.tracked else (sub.receive, None)

    def later() -> Taking | None:
        poller = backend.Poller()
        poller.registerSocket(sub)
        return choose_take() if poller.poll(sub.rcvtimeo) else None

    if not hasattr(sub, "tracked"):
        return Source(sub.endpoint, sub.receive, read_stamps)
    return Source(sub.endpoint, *choose_take()) if sub.tracked else Source(sub.endpoint, None, None, later=later)


def read_stamps(message: Any) -> Stamps:
    """Return when a message was published, and its origin, ns; 0: nobody said."""
    names = getattr(getattr(message, "dtype", None), "names", None)
    if names is not None and names[:2] == STAMP_NAMES:
        return int(message["publish_time"]), int(message["origin_time"])
    published: int = getattr(message, "publish_time", getattr(message, "sent_time", 0))
    return published, getattr(message, "origin_time", 0)

"""Sources of messages for stage tracers: the receiving call of each kind, and the timestamps of its messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from msgq.common import naming
from msgq.common.units import NS_PER_MS
from msgq.impl.base.argument_checks import timeout_ms, timeout_ns
from msgq.impl.base.core import Waitable

StampPair = tuple[int, int]
MessageReader = tuple[Callable[[Any], Any], Callable[[Any], StampPair] | None]
_STAMP_PAIR_STRUCT = struct.Struct("<qq")
STAMP_FIELDS = ("publish_time", "origin_time")


class TracedSource(NamedTuple):
    """A source of messages.

    Attributes:
        endpoint: endpoint, named as in `msgq list`.
        take_message: takes the next message, with a timeout in seconds; returns None at the timeout. For a topic, the
            argument is True if the call must not wait, and otherwise False, and the function knows the timeout. None:
            `wait_for_reader` returns the function.
        read_stamps: returns publish time and origin of a message, ns, 0: unknown; None: use `subscriber`.
        subscriber: subscriber that knows the timestamps of its last message.
        wait_for_reader: waits for the first message, and returns `take_message` and `read_stamps`; None at the timeout.
    """

    endpoint: str
    take_message: Callable[[Any], Any] | None
    read_stamps: Callable[[Any], StampPair] | None
    subscriber: Any = None
    wait_for_reader: Callable[[], MessageReader | None] | None = None


def resolve_traced_source(source: Any, timeout: float | None, backend: ModuleType) -> TracedSource:
    """Return the traced source for a reader.

    Raises:
        TypeError: the object is not a source.
    """
    if hasattr(source, "consume"):  # a queue of records
        tracked = source.dtype.names is not None and source.dtype.names[:2] == STAMP_FIELDS
        reader = None if tracked or source.producers == "single" else source._reader
        stamps = _read_record_stamps if tracked else _choose_stamps_reader(reader)
        return TracedSource(source.endpoint, source.receive, stamps, reader)
    if hasattr(source, "receive_view"):  # a subscriber of a channel
        endpoint = naming.CHANNEL_NAME_PREFIX + source.endpoint
        return TracedSource(endpoint, source.receive, _choose_stamps_reader(source), source)
    if hasattr(source, "max_message_size"):  # a work queue
        endpoint = naming.QUEUE_NAME_PREFIX + source.name
        return TracedSource(endpoint, source.receive, _read_message_stamps)
    if hasattr(source, "changes"):  # a vector
        return TracedSource(source.endpoint, partial(_wait_for_changes, source), _read_changes_stamps)
    if hasattr(source, "buffer_len"):  # a client of frames
        return TracedSource(source.endpoint, partial(_receive_frame, source), read_stamps)
    if hasattr(source, "setTimeout"):  # a subscriber of a topic
        return _resolve_topic(source, timeout, backend)
    expected = "a queue, a subscriber, a vector or a client of frames"
    raise TypeError(f"source is of type {type(source).__name__}; give {expected}")


def _choose_stamps_reader(reader: Any) -> Callable[[Any], StampPair] | None:
    """Return a function that reads the timestamps of a subscriber's last message; None: C code reads them."""
    if reader is None:
        return _return_unknown_stamps
    return None if isinstance(reader, Waitable) else lambda _message: read_stamps(reader.last)


def _return_unknown_stamps(_message: Any) -> StampPair:
    return 0, 0


def _read_record_stamps(record: Any) -> StampPair:
    return _STAMP_PAIR_STRUCT.unpack_from(record)


def _read_message_stamps(message: Any) -> StampPair:
    return message.sent_time, message.origin_time


def _wait_for_changes(vector: Any, timeout: float | None) -> Any:
    """Take the changes; None: no change before the timeout."""
    return vector.changes() if vector.wait(timeout) else None


def _receive_frame(client: Any, timeout: float | None) -> Any:
    """Return the next frame; None: no frame before the timeout."""
    return client.recv(-1 if timeout is None else timeout * 1000)


def _read_changes_stamps(changes: Any) -> StampPair:
    """Return the time of the newest write. The origin is 0, because only fields of tracked records contain it."""
    return int(changes.times.max()), 0


def _resolve_topic(sub: Any, timeout: float | None, backend: ModuleType) -> TracedSource:
    """Return the traced source of a topic. The first message determines for good whether the topic is tracked.

    The timeout of the socket stays unchanged, because it belongs to the program.
    """

    def wait_for_message() -> bool:
        poller = backend.Poller()
        poller.registerSocket(sub)
        patience_ms = sub.rcvtimeo if timeout is None else timeout_ms(-(timeout_ns(timeout) // -NS_PER_MS))
        return bool(poller.poll(patience_ms))

    def receive_tracked_in_time(_is_non_blocking: bool) -> Any:
        message = sub.receive_tracked(True)
        return sub.receive_tracked(True) if message is None and wait_for_message() else message

    def receive_in_time(_is_non_blocking: bool) -> Any:
        return sub.receive(timeout=timeout)

    receive = receive_in_time if timeout else sub.receive  # None: the socket's own timeout applies; 0: no wait

    def choose_reader() -> MessageReader:
        if not sub.tracked:
            return receive, None
        return receive_tracked_in_time if timeout else sub.receive_tracked, read_stamps

    def wait_for_reader() -> MessageReader | None:
        return choose_reader() if wait_for_message() else None

    if not hasattr(sub, "tracked"):
        return TracedSource(sub.endpoint, receive, read_stamps)
    if sub.tracked:
        return TracedSource(sub.endpoint, *choose_reader())
    return TracedSource(sub.endpoint, None, None, wait_for_reader=wait_for_reader)


def read_stamps(message: Any) -> StampPair:
    """Return publish time and origin of a message, ns; 0: unknown."""
    names = getattr(getattr(message, "dtype", None), "names", None)
    if names is not None and names[:2] == STAMP_FIELDS:
        return int(message["publish_time"]), int(message["origin_time"])
    published: int = getattr(message, "publish_time", getattr(message, "sent_time", 0))
    return published, getattr(message, "origin_time", 0)

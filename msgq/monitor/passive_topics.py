"""Passive subscribers of topics that appear and disappear, with counts of missed messages."""

import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

import msgq
from msgq.common import settings
from msgq.common.schema import Schema
from msgq.errors import CorruptSegmentError, MessageSizeError, MsgqError
from msgq.impl.backend import resolve_prefix
from msgq.impl.ring import SubSocket
from msgq.impl.ring.core import TopicObserver
from msgq.stats import topic_inodes

_BATCH_BYTES_MAX = 4 << 20
_BATCH_MESSAGES_MAX = 1 << 17  # messages of one topic before the next one's turn
STAMP_FIELDS = ("publish_time", "origin_time")
STAMPS_DTYPE = np.dtype([(name, "<i8") for name in STAMP_FIELDS])
_SCHEMA_PERIOD_S = 1.0  # maximum delay until another schema is found


@dataclass(frozen=True)
class ReceivedBatch:
    """New messages of a topic.

    Attributes:
        rows: messages of the expected size, as arrays.
        other_messages: messages of other sizes.
        lost: number of messages that were published since the previous batch and cannot be read; None: unknown.
    """

    rows: list[np.ndarray[Any, np.dtype[Any]]]
    other_messages: list[bytes]
    lost: int | None


class PassiveTopic:
    """A passive subscriber of a topic.

    Args:
        name: name of an existing topic.
        came_late: True: the topic appeared during the measurement, and messages published before now count as lost.

    Raises:
        MsgqError: connecting failed.
    """

    def __init__(self, name: str, came_late: bool) -> None:
        self.name = name
        self._socket = SubSocket()
        prefix = resolve_prefix()
        with settings.overrides(prefix):
            self._socket.connect(msgq.context, name, passive=True)
        self._socket.setTimeout(0)
        self._observer = TopicObserver(name, prefix)
        self._came_late = came_late
        self._lost_before = self._reported_losses = 0  # losses before the first look; returned part of all losses
        self._corrupt = False
        self._schema_counts: tuple[int | None, int] | None = None  # position of the topic when its schema was read
        self._schema_read_s = 0.0
        self._schema: Schema | None = None

    @property
    def is_known(self) -> bool:
        """True if the topic had messages when its schema was read."""
        return self._schema_counts is not None and any(self._schema_counts)

    def read_schema(self) -> Schema | None:
        """Return the schema. Call this method before you take messages, because publishers set the schema first."""
        counts = self._observer.counts()
        moved = counts.messages, counts.position_bytes
        now_s = time.monotonic()
        if self._schema_counts is None or (
            moved != self._schema_counts and (not self.is_known or now_s - self._schema_read_s >= _SCHEMA_PERIOD_S)
        ):
            self._schema_counts, self._schema_read_s = moved, now_s
            self._schema = self._observer.stats().schema
        return self._schema

    @property
    def is_tracked(self) -> bool:
        """True if each message has timestamps before the payload. `take_messages` returns payloads only."""
        return self._socket.tracked

    def take_messages(self, dtype: np.dtype[Any]) -> ReceivedBatch:
        """Return the messages since the last call. `dtype`: dtype of a message of the expected size."""
        other_messages: list[bytes] = []
        return self._collect_batch(self._receive_arrays(dtype, other_messages), other_messages)

    def take_stamp_batch(self) -> ReceivedBatch:
        """Return the timestamps of a tracked topic's messages since the last call."""
        return self._collect_batch(self._receive_stamps(), [])

    def _collect_batch(
        self, received: Iterator[np.ndarray[Any, np.dtype[Any]]], other_messages: list[bytes]
    ) -> ReceivedBatch:
        published = self._observer.counts().messages
        rows: list[np.ndarray[Any, np.dtype[Any]]] = []
        drained = False
        try:
            for array in received:
                rows.append(array)
            drained = sum(map(len, rows)) + len(other_messages) < _BATCH_MESSAGES_MAX
        except CorruptSegmentError:  # the next poll continues at the newest position
            self._corrupt = True
        return ReceivedBatch(rows, other_messages, self._count_new_losses(published if drained else None))

    def _receive_arrays(
        self, dtype: np.dtype[Any], other_messages: list[bytes]
    ) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
        at_once = max(1, _BATCH_BYTES_MAX // dtype.itemsize)
        batch = 0
        while batch < _BATCH_MESSAGES_MAX:
            try:
                array = self._socket.receive_array(dtype, min(at_once, _BATCH_MESSAGES_MAX - batch))
            except MessageSizeError:
                other_messages += self._socket.receive_many(1)
                batch += 1
            else:
                if not len(array):
                    return
                batch += len(array)
                yield array

    def _receive_stamps(self) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
        times: list[tuple[int, int]] = []
        while (
            len(times) < _BATCH_MESSAGES_MAX
            and (message := self._socket.receive_tracked(non_blocking=True)) is not None
        ):
            times.append((message.publish_time, message.origin_time))
        yield np.array(times, STAMPS_DTYPE)

    def _count_new_losses(self, published: int | None) -> int | None:
        """Return the losses since the last call; None: unknown.

        `published`: number of messages published on the topic, read before all of them were taken; None: some remain.
        """
        stats = self._socket.stats()
        if stats.lost is None or self._corrupt:
            return None
        if self._came_late and published is not None:
            self._lost_before = max(self._lost_before, published - stats.received - stats.lost)
        before, self._reported_losses = self._reported_losses, stats.lost + self._lost_before
        return self._reported_losses - before

    def close(self) -> None:
        """Close the subscriber."""
        self._socket.close()


class ClosableReader(Protocol):
    """A reader of a topic."""

    def close(self) -> None:
        """Close the reader."""


_T = TypeVar("_T", bound=ClosableReader)


class TopicFollower(Generic[_T]):
    """Keeps one reader for each existing topic. If a ring is replaced, the follower creates a new reader.

    Args:
        wanted: returns True for the name of a selected topic.
        make: returns the reader of a topic. The second argument is `came_late` of `PassiveTopic`.

    Attributes:
        by_name: readers by topic.
        refused: reasons by topic that cannot be read.
    """

    def __init__(self, is_selected: Callable[[str], bool], make: Callable[[str, bool], _T]) -> None:
        self._is_selected, self._open_by_name = is_selected, make
        self._inodes: dict[str, int] = {}
        self._has_refreshed = False
        self.by_name: dict[str, _T] = {}
        self.refused: dict[str, str] = {}

    def refresh(self, last: Callable[[str, _T], object]) -> None:
        """Add new topics, and remove missing ones. `last` gets each removed reader before it is closed."""
        existing = {
            name: inode
            for name, inode in topic_inodes().items()
            if name.encode(errors="ignore").decode() == name
            and self._is_selected(name)  # a name that is no text is none
        }
        for name in [name for name, inode in self._inodes.items() if existing.get(name) != inode]:
            last(name, self.by_name[name])
            self.by_name.pop(name).close()
            del self._inodes[name]
        for name in self.refused.keys() - existing.keys():
            del self.refused[name]
        for name, inode in existing.items():
            if name not in self._inodes:
                self._open_topic(name, inode)
        self._has_refreshed = True

    def _open_topic(self, name: str, inode: int) -> None:
        try:
            self.by_name[name] = self._open_by_name(name, self._has_refreshed)
        except MsgqError as error:
            if getattr(error, "errno", None) != errno.ENOENT:  # else it was just removed
                self.refused[name] = str(error)
        else:
            self._inodes[name] = inode
            self.refused.pop(name, None)

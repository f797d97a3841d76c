"""What `msgq echo` shows, of endpoints of each kind: all of it read passively, so that nobody notices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgq
from msgq.cli.common.render import in_us
from msgq.common import naming
from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.errors import RecordMismatchError
from msgq.impl.base import clock
from msgq.impl.base.waiting import Waitable
from msgq.impl.channel import Subscriber, open_channel_file
from msgq.impl.records import Board, SeqlockVector
from msgq.impl.ring import SubSocket
from msgq.stats import topic

_BATCH = 1000  # messages of one endpoint before it is another one's turn


@dataclass(frozen=True, slots=True)
class Item:
    """A message, value or event.

    Attributes
    ----------
    data : its payload; None: there is none to be seen.
    facts : what is known of it beside that, for programs.
    text : the same for people, in front of the payload; "": nothing.
    schema : of the payload.
    """

    data: bytes | None
    facts: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    schema: Schema | None = None


class Feed(ABC):
    """An endpoint that is listened to.

    Attributes
    ----------
    waits : what tells that something has come; None: only a look does.
    """

    waits: Waitable | None = None

    @abstractmethod
    def take(self, most: int | None) -> list[Item]:
        """Return what has come since the last call, at most so much. Who gets as much as that asks no more."""

    def complaint(self) -> str:
        """Return what is to be said of messages that were missed since the last call; "": nothing."""
        return ""


class TopicFeed(Feed):
    """A topic."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.waits = self._socket = SubSocket()
        self._socket.connect(msgq.context, name, passive=True)
        self._socket.setTimeout(0)
        self._schema: Schema | None = topic(name).schema
        self._lost: int | None = 0

    def take(self, most: int | None) -> list[Item]:
        """Return the messages that came."""
        messages = self._socket.receive_many(most)
        if messages and self._schema is None:
            self._schema = topic(self._name).schema
        return [Item(message, schema=self._schema) for message in messages]

    def complaint(self) -> str:
        """Return how many messages were lost."""
        before, self._lost = self._lost, self._socket.lost
        if self._lost is None:
            return "" if before is None else _lost(None)  # said once: nobody knows how many
        return _lost(self._lost - (before or 0))


class ChannelFeed(Feed):
    """A channel, whichever backend is chosen: its files; messages from now on, or also as many as there are before."""

    def __init__(self, name: str, history: int = 0) -> None:
        self._channel_file = open_channel_file(name, naming.resolve_prefix(None))
        self.waits = self._subscriber = Subscriber(self._channel_file, "", history, 0, False, False, False, True, None)
        self._schema: Schema | None = None
        self._lost = 0

    def take(self, most: int | None) -> list[Item]:
        """Return the messages that came, with who published them."""
        items: list[Item] = []
        while len(items) < (_BATCH if most is None else min(most, _BATCH)):
            data = self._subscriber.receive(0)
            if data is None:
                break
            items.append(self._item(data))
        return items

    def _item(self, data: bytes) -> Item:
        last = self._subscriber.last
        assert last is not None
        self._schema = self._channel_file.schema if self._schema is None else self._schema
        facts = {
            "position": last.position,
            "publisher": {"name": last.publisher.name, "pid": last.publisher.pid},
            "publish_time": last.publish_time,
            "origin_time": last.origin_time,
        }
        return Item(data, facts, f"{last.publisher.name} {last.position}", self._schema)

    def complaint(self) -> str:
        """Return how many messages were lost."""
        before, self._lost = self._lost, self._subscriber.lost
        return _lost(self._lost - before)


class VectorFeed(Feed):
    """A vector: what was ever written as it is now, then what changes."""

    def __init__(self, vector: SeqlockVector) -> None:
        self.waits = self._vector = vector
        self._schema = struct_schema(vector.dtype)

    def take(self, most: int | None) -> list[Item]:
        """Return the elements that changed."""
        changes = self._vector.changes()
        now_ns = clock.time_ns()
        columns = (changes.indices.tolist(), changes.counts.tolist(), changes.times.tolist(), changes.rows)
        return [
            Item(row.tobytes(), *_format_write("index", index, count, time_ns, now_ns), self._schema)
            for index, count, time_ns, row in islice(zip(*columns, strict=True), most)
        ]


class BoardFeed(Feed):
    """A board: each value as it is now, then what changes."""

    def __init__(self, board: Board) -> None:
        self.waits = self._board = board

    def take(self, most: int | None) -> list[Item]:
        """Return the values that changed."""
        changes = self._board.changes()
        now_ns, schema = clock.time_ns(), self._board.schema
        return [
            Item(value.data, *_format_write("key", key, value.count, value.time, now_ns), schema)
            for key, value in islice(changes.items(), most)
        ]


def records_feed(name: str) -> Feed:
    """Return the feed of a vector or board."""
    try:
        return VectorFeed(SeqlockVector(name, create=False, passive=True))
    except RecordMismatchError:
        return BoardFeed(Board(name, create=False, passive=True))


def _lost(messages: int | None) -> str:
    if messages == 0:
        return ""
    return f"lost {'' if messages is None else f'{messages} '}messages, which came faster than they were shown"


def _format_write(name: str, where: int | str, count: int, time_ns: int, now_ns: int) -> tuple[dict[str, Any], str]:
    """Return what is known of a value, for programs and for people."""
    age_ns = max(0, now_ns - time_ns)
    facts = {name: where, "count": count, "publish_time": time_ns, "age_ns": age_ns}
    return facts, f"{where}, write {count}, {in_us(age_ns / 1000)} us ago"

"""Where `msgq pub` publishes: endpoints of each kind, as one that takes bytes."""

from __future__ import annotations

import errno
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Self

import click
import numpy as np

import msgq
from msgq import stats
from msgq.common import naming
from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.errors import BoardKeyError, RecordMismatchError, SegmentError, WaitTimeoutError
from msgq.impl.channel import open_channel_file, open_publisher
from msgq.impl.records import Board, SeqlockVector
from msgq.impl.ring import PubSocket
from msgq.impl.workqueue import MessageQueue
from msgq.kinds import kind_of
from msgq.records.names import KIND as RECORDS
from msgq.topic.names import KIND as TOPIC
from msgq.topic.stats import describe_publisher
from msgq.workqueue.names import KIND as QUEUE

JSON = Schema("json", "json")
_NODE = "msgq pub"
_POOL_BYTES_MAX = 1 << 30
_LOOK_S = 0.02  # between two looks for subscribers


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What the user said beside the messages.

    Attributes
    ----------
    endpoint : with its mark.
    as_json : messages are JSON, and an endpoint without a schema says so from now on.
    force : a topic is taken over from a publisher that lives.
    priority : of messages of a queue; None: not given.
    index, key : of a vector's element, of a board's value; None: not given.
    timeout : seconds to wait, for subscribers or for room; None: for ever.
    """

    endpoint: str
    as_json: bool
    force: bool
    priority: int | None
    index: int | None
    key: str | None
    timeout: float | None

    def check(self) -> None:
        """Refuse options that are for endpoints of another kind. click.UsageError."""
        kind = kind_of(self.endpoint)
        for option, value, kind in (
            ("--force", self.force, TOPIC),
            ("--priority", self.priority is not None, QUEUE),
            ("--index", self.index is not None, RECORDS),
            ("--key", self.key is not None, RECORDS),
        ):
            if value and kind is not kind:
                raise click.UsageError(
                    f"{option} is for {kind.name_prefix}NAME" if kind.name_prefix else f"{option} is for topics"
                )


class PublishTarget(ABC):
    """An endpoint that messages can be published on: made by a look at it, opened by a ``with`` block.

    Attributes
    ----------
    schema : of its messages, as far as it is known.
    """

    def __init__(self, wanted: PublishOptions, schema: Schema | None) -> None:
        self._wanted, self.schema = wanted, schema
        self._name = kind_of(wanted.endpoint).bare_name(wanted.endpoint)
        self._claims = JSON if wanted.as_json and schema is None else None
        self._messages = self._bytes = 0

    @abstractmethod
    def _open(self) -> None:
        """Take part."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Publish one message."""

    @abstractmethod
    def _close(self) -> None:
        """Leave."""

    def former(self) -> bytes | None:
        """Return the value that the next message replaces; None without one, and for all kinds except records."""
        return None

    def send(self, data: bytes) -> None:
        """Publish one message.

        Raises
        ------
        QueueFullError, WaitTimeoutError : there was no room in time.
        """
        self._send(data)
        self._messages += 1
        self._bytes += len(data)

    def wait(self, readers: int) -> None:
        """Wait until so many subscribers are there. WaitTimeoutError: they did not come in time."""
        raise click.UsageError(f"--wait-for-subscribers waits for subscribers, which {self._wanted.endpoint} has not")

    def summary(self) -> dict[str, Any]:
        """Return what was published."""
        return {"endpoint": self._wanted.endpoint, "messages": self._messages, "bytes": self._bytes}

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


class TopicTarget(PublishTarget):
    """A topic, unless somebody who lives publishes there."""

    def __init__(self, wanted: PublishOptions) -> None:
        super().__init__(wanted, _schema_of_free_topic(wanted.endpoint, wanted.force))
        self._socket = PubSocket()

    def _open(self) -> None:
        self._socket.connect(msgq.context, self._name, schema=self._claims)

    def _send(self, data: bytes) -> None:
        self._socket.send(data)

    def _close(self) -> None:
        self._socket.close()

    def wait(self, readers: int) -> None:
        """Wait until so many have subscribed."""
        self._socket.wait_for_readers(self._wanted.timeout, n=readers)

    def summary(self) -> dict[str, Any]:
        """Return what was published, by former publishers as well."""
        return asdict(self._socket.stats())


def _schema_of_free_topic(endpoint: str, force: bool) -> Schema | None:
    """Return the topic's schema, and refuse when somebody publishes there."""
    try:
        existing = stats.topic(endpoint)
    except SegmentError as error:
        if error.errno is not None:  # there is none yet
            return None
        raise
    alive = existing.publisher_kind == "stock" or (
        existing.publisher is not None and existing.publisher.alive is not False
    )
    if alive and not force:
        text = f"{endpoint} is published by {describe_publisher(existing)}, which this would cut off"
        raise click.ClickException(f"{text}; --force does it all the same")
    return existing.schema


def _schema_there(name: str) -> Schema | None:
    """Return the schema of an endpoint that is made if it is not there."""
    try:
        return stats.endpoint(name).schema
    except SegmentError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


class ChannelTarget(PublishTarget):
    """A channel, whichever backend is chosen: its files. It is made if it is not there."""

    def __init__(self, wanted: PublishOptions) -> None:
        super().__init__(wanted, _schema_there(wanted.endpoint))

    def _open(self) -> None:
        self._channel_file = open_channel_file(
            self._name, naming.resolve_prefix(None), None, writable=True, creator=_NODE
        )
        if self._claims is not None:
            self._channel_file.describe(self._claims, False)
        self._publisher = open_publisher(self._channel_file, _NODE, None, None, _POOL_BYTES_MAX)

    def _send(self, data: bytes) -> None:
        self._publisher.send(data, timeout=self._wanted.timeout)

    def _close(self) -> None:
        self._publisher.close()
        self._channel_file.close()

    def wait(self, readers: int) -> None:
        """Wait until so many subscribers are listed; passive ones never are."""
        began_s = time.monotonic()
        while (
            sum(subscriber.participant.alive is not False for subscriber in self._channel_file.stats().subscribers)
            < readers
        ):
            timeout = self._wanted.timeout
            if timeout is not None and time.monotonic() - began_s >= timeout:
                raise WaitTimeoutError(f"had no {readers} subscribers within {timeout:g} s", self._wanted.endpoint)
            time.sleep(_LOOK_S)


class QueueTarget(PublishTarget):
    """A work queue, whichever backend is chosen: its file. It is made if it is not there."""

    def __init__(self, wanted: PublishOptions) -> None:
        super().__init__(wanted, _schema_there(wanted.endpoint))

    def _open(self) -> None:
        self._queue = MessageQueue(self._name, read=False, schema=self._claims)

    def _send(self, data: bytes) -> None:
        self._queue.send(data, self._wanted.priority or 0, timeout=self._wanted.timeout)

    def _close(self) -> None:
        self._queue.close()


class VectorTarget(PublishTarget):
    """An element of a vector that is there."""

    def __init__(self, wanted: PublishOptions, vector: SeqlockVector) -> None:
        super().__init__(wanted, struct_schema(vector.dtype))
        self._vector = vector
        if wanted.key is not None:
            raise click.UsageError(f"{wanted.endpoint} is a vector, which has no keys; give --index")
        if wanted.index is None and len(vector) > 1:
            raise click.UsageError(
                f"{wanted.endpoint} has {len(vector)} elements; give --index, 0 to {len(vector) - 1}"
            )
        self._index = wanted.index or 0

    def _open(self) -> None:
        self._vector.claim()

    def former(self) -> bytes | None:
        """Return the element, if it was ever written."""
        written = self._vector.counts([self._index])[0]
        return self._vector.read([self._index]).tobytes() if written else None

    def _send(self, data: bytes) -> None:
        dtype = self._vector.dtype
        if len(data) != dtype.itemsize:
            text = f"{self._wanted.endpoint} has elements of {dtype.itemsize} bytes, and this message has {len(data)}"
            raise click.ClickException(text)
        row = np.frombuffer(data, dtype)
        self._vector.write([self._index], row, timeout=self._wanted.timeout)

    def _close(self) -> None:
        self._vector.close()


class BoardTarget(PublishTarget):
    """A value of a board that is there."""

    def __init__(self, wanted: PublishOptions, board: Board) -> None:
        super().__init__(wanted, board.schema)
        self._board = board
        if wanted.key is None:
            text = "a board, which has no indexes" if wanted.index is not None else "a board"
            raise click.UsageError(f"{wanted.endpoint} is {text}; give --key")
        self._key = wanted.key

    def _open(self) -> None:
        self._entry = self._board.declare(self._key)

    def former(self) -> bytes | None:
        """Return the key's value, if it was ever written."""
        try:
            return self._board[self._key]
        except BoardKeyError:
            return None

    def _send(self, data: bytes) -> None:
        self._entry.write(data)

    def _close(self) -> None:
        self._board.close()


def open_records_target(wanted: PublishOptions) -> PublishTarget:
    """Return a vector or board. click.ClickException: there is none, and of a message nobody knows what to make."""
    name = RECORDS.bare_name(wanted.endpoint)
    try:
        return VectorTarget(wanted, SeqlockVector(name, create=False))
    except RecordMismatchError:
        return BoardTarget(wanted, Board(name, create=False))
    except SegmentError as error:
        if error.errno != errno.ENOENT:
            raise
        text = f"{wanted.endpoint} not found; a message does not tell its dtype or sizes. Create it with"
        raise click.ClickException(f"{text} msgq.SeqlockVector or msgq.Board") from None

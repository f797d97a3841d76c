"""Topic of a record queue with one producer."""

from __future__ import annotations

import errno
import math
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgq.common import settings
from msgq.common.dtypes import struct_schema
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_MS
from msgq.errors import InvalidValueError, LostMessagesError, SegmentError, SegmentSizeError, StateError
from msgq.impl import backend as backends
from msgq.impl.base.argument_checks import not_connected_error, timeout_ms, timeout_ns
from msgq.kinds import get_kind
from msgq.records.record_transport import DEFAULT_CAPACITY, make_bytes_dtype, resolve_queue_dtype, round_capacity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.schema import Schema
    from msgq.common.stats.channel import PublisherInfo

CAPACITY_MIN = 4  # a message may take a third of a ring
PUBLISHER_LEAD_BYTES_MAX = 65536  # maximum distance between the publisher's limit and its messages
PUBLISHER_LEADS_PER_RING = 15  # the lead is at most a sixteenth of the ring
RING_BYTES_MIN, RING_BYTES_MAX = 128, 2**32 - 1
UNLIMITED_CAPACITY = 2**62
RING_BACKEND, FAKE_BACKEND = "msgq.impl.ring", "msgq.impl.fake"


class TopicTransport:
    """A topic of records. See `RecordTransport`."""

    stores_origins = False  # tracked records contain their origins

    def __init__(
        self,
        name: str,
        prefix: str,
        dtype: np.dtype[Any] | None,
        capacity: int | None,
        create: bool | None,
        raises: bool,
        trust: str | None,
        spin_us: int | None,
    ) -> None:
        self._name, self._prefix, self._trust, self.raises = name, prefix, trust, raises
        self._module = backends.current_backend()
        self._check_topic_existence(create)
        topic = self._read_topic_schema()
        self.dtype = resolve_queue_dtype(dtype, topic, name)
        self._bytes_dtype = make_bytes_dtype(self.dtype)
        self._has_checked_schema = topic is not None
        self._lost_reported = 0
        self._timeout: float | None = None
        self.publisher: Any = None
        self._is_forked = False  # since the last send
        self._poller: Any = None
        self.capacity = round_capacity(capacity, CAPACITY_MIN, UNLIMITED_CAPACITY, name) or DEFAULT_CAPACITY
        self.subscriber = self._connect_subscriber(create, capacity is None, spin_us)
        if hasattr(self.subscriber, "_set_record_bytes"):  # ZMQ's are never lapped
            self.subscriber._set_record_bytes(self.dtype.itemsize)

    def _connect_subscriber(self, create: bool | None, any_size: bool, spin_us: int | None) -> Any:
        size = resolve_ring_bytes(self.dtype.itemsize, self.capacity, self._name)
        socket = self._module.SubSocket()
        if self._module.__name__ in (RING_BACKEND, FAKE_BACKEND):
            socket._set_create(create)
        with settings.overrides(in_prefix=self._prefix, trust=self._trust):
            try:
                socket.connect(backends.context, self._name, segment_size=size, spin_us=spin_us, trust=self._trust)
            except SegmentSizeError as error:
                if not any_size:
                    text = f"queue exists with a capacity other than {self.capacity}"
                    text = f"{text}; omit capacity to use the existing one, or remove the queue (msgq clean)"
                    raise SegmentSizeError(text, self._name, error.path) from error
                socket.connect(backends.context, self._name, spin_us=spin_us, trust=self._trust)
                topic = self._read_topic_info()
                if topic is not None:
                    self.capacity = compute_ring_capacity(topic.data_bytes, self.dtype.itemsize)
        return socket

    def _check_topic_existence(self, create: bool | None) -> None:
        """Check that the topic exists or does not exist, according to `create`.

        The ring checks it again under its lock.
        """
        if create is None:
            return
        if self._module.__name__ not in (RING_BACKEND, FAKE_BACKEND):
            raise InvalidValueError("create cannot be used with ZMQ, which has no files; omit create", self._name)
        exists = self._read_topic_info() is not None
        if create and exists:
            raise SegmentError("queue exists; give another name, or omit create=True", self._name, errno=errno.EEXIST)
        if not create and not exists:
            raise SegmentError("queue not found; create it, or omit create=False", self._name, errno=errno.ENOENT)

    def _read_topic_info(self) -> Any:
        """Return the statistics of the topic; None: unknown, or the topic does not exist."""
        with settings.overrides(in_prefix=self._prefix, trust=self._trust):
            try:
                return read_topic_stats(self._module, self._name, self._prefix)
            except SegmentError:
                return None

    def _read_topic_schema(self) -> Schema | None:
        """Return the schema of the topic; None: no schema, or the topic does not exist."""
        topic = self._read_topic_info()
        schema: Schema | None = None if topic is None else topic.schema
        return schema

    # ---- producing ----

    def _connect_publisher(self) -> Any:
        """Return a new publisher. Raises an error if the queue is closed, or the topic has records of another dtype."""
        if self.subscriber.closed:
            raise not_connected_error(self._name)
        resolve_queue_dtype(self.dtype, self._read_topic_schema(), self._name)
        socket = self._module.PubSocket()
        with settings.overrides(in_prefix=self._prefix, trust=self._trust):
            socket.connect(backends.context, self._name, schema=struct_schema(self.dtype), trust=self._trust)
        self.publisher, self._is_forked = socket, False
        if self.subscriber.closed:  # another thread closed the queue in the meantime
            socket.close()
            raise not_connected_error(self._name)
        return socket

    def detach_inherited_producer(self) -> None:
        """See `RecordTransport`. The next send takes the topic over."""
        self._is_forked = True

    def send(self, rows: npt.NDArray[Any], _origin_time: int) -> int:
        """See `RecordTransport`."""
        publisher = self.publisher or self._connect_publisher()
        if self._is_forked:  # it takes over now, as `_connected` would
            resolve_queue_dtype(self.dtype, self._read_topic_schema(), self._name)
        if len(rows) == 1:
            publisher.send(rows.tobytes())
        else:
            packed = rows.view(self._bytes_dtype)
            publisher.send_many(packed if packed.itemsize > 1 else packed.reshape(-1, 1))  # bytes in a row are one
        self._is_forked = False
        return int(publisher._sent_count) - len(rows)

    def get_next_number(self) -> int:
        """See `RecordTransport`."""
        if self.publisher is None or self._is_forked:
            self._connect_publisher()
        return int(self.publisher._sent_count)

    # ---- consuming ----

    @property
    def lost(self) -> int | None:
        """See `RecordTransport`."""
        lost: int | None = self.subscriber.lost
        return lost

    def receive(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """See `RecordTransport`. The ring's subscriber ends an array before a loss.

        The next call starts after the loss.
        """
        if self.raises:
            records = self._receive_or_raise_lost(limit, timeout)
        else:
            self._set_receive_timeout(timeout)
            records = self.subscriber.receive_array(self.dtype, limit, timeout != 0)
            while not len(records) and limit != 0 and self.lost not in (None, self._lost_reported):
                self._lost_reported = self.lost or 0  # after a lap, it continues at the oldest record
                records = self.subscriber.receive_array(self.dtype, limit)
        if len(records):
            self.check_schema()
        return records

    def check_schema(self) -> None:
        """See `RecordTransport`. The producer sets the schema before its first record."""
        if not self._has_checked_schema:
            resolve_queue_dtype(self.dtype, self._read_topic_schema(), self._name)
            self._has_checked_schema = True

    def _receive_or_raise_lost(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """Take records, or raise an error for a previous loss. A call without waiting does only one of both."""
        patience = -1 if timeout is None else -(timeout_ns(timeout, self._name) // -NS_PER_MS)
        self._raise_lost_records()
        records: npt.NDArray[Any] = self.subscriber.receive_array(self.dtype, limit)
        if len(records) or limit == 0:
            return records
        self._raise_lost_records()
        if patience and self._wait_until_readable(patience):
            self._raise_lost_records()
            records = self.subscriber.receive_array(self.dtype, limit)
            if not len(records):
                self._raise_lost_records()
        return records

    def _wait_until_readable(self, milliseconds: int) -> bool:
        if self._poller is None:
            self._poller = self._module.Poller()
            self._poller.registerSocket(self.subscriber)
        return bool(self._poller.poll(milliseconds))

    def _raise_lost_records(self) -> None:
        lost = self.lost
        if lost is None or lost == self._lost_reported:
            return
        error = LostMessagesError(
            f"{format_count_noun(lost - self._lost_reported, 'record')} lost; the next call continues after them",
            self._name,
        )
        error.lost, self._lost_reported = lost - self._lost_reported, lost
        raise error

    def take_record(self, timeout: float | None) -> bytes | None:
        """See `RecordTransport`."""
        if self.raises:
            rows = self._receive_or_raise_lost(1, timeout)
            return rows.tobytes() if len(rows) else None
        self._set_receive_timeout(timeout)
        data: bytes | None = self.subscriber.receive()
        return data

    def _set_receive_timeout(self, timeout: float | None) -> None:
        if timeout == self._timeout:
            return
        timeout_ns(timeout, self._name)  # the socket would accept -1, too
        self.subscriber.setTimeout(-1 if timeout is None else timeout_ms(math.ceil(timeout * 1000), self._name))
        self._timeout = timeout

    def receive_with_publishers(
        self, _limit: int | None, _timeout: float | None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """See `RecordTransport`. Raises an error, because topics do not store publishers."""
        raise StateError('queue does not name its producer; create it with producers="multiple"', self._name)

    def unlink(self) -> None:
        """See `RecordTransport`."""
        with settings.overrides(trust=self._trust):
            unlink_queue_topic(self._module, self._name, self._prefix)

    def close(self) -> None:
        """See `RecordTransport`."""
        self.subscriber.close()
        if self.publisher is not None:
            self.publisher.close()


def resolve_ring_bytes(item_bytes: int, capacity: int, name: str) -> int:
    """Return the size of a ring in which `capacity` records stay readable, at any position of its publisher.

    Raises:
        InvalidValueError: the ring would be too large.
    """
    size = compute_ring_bytes(item_bytes, capacity)
    if size > RING_BYTES_MAX:
        text = (
            f"capacity of {capacity} records of {item_bytes} bytes needs a ring of {size} "
            f"bytes; at most {RING_BYTES_MAX} are allowed"
        )
        raise InvalidValueError(text, name)
    return max(size, RING_BYTES_MIN)


def compute_ring_bytes(item_bytes: int, capacity: int) -> int:
    """Return the bytes of a ring for `capacity` records, without a limit."""
    need = 8 + (item_bytes + 7 & ~7)
    room = capacity * need + need + 16  # one more, and the wrap mark: the last record of a lap does not fit
    return room + min(PUBLISHER_LEAD_BYTES_MAX, -(room // -PUBLISHER_LEADS_PER_RING)) + 8


def compute_ring_capacity(data_bytes: int, item_bytes: int) -> int:
    """Return the capacity of an existing ring: a power of two, or 0 if the ring may be too small for one record."""
    capacity = 1
    while compute_ring_bytes(item_bytes, capacity) <= data_bytes:
        capacity *= 2
    return capacity // 2


def unlink_queue_topic(backend: ModuleType, name: str, prefix: str) -> None:
    """Remove the name of a topic. A process that is opening the topic finishes first.

    Raises:
        SegmentError: the topic does not exist.
        StateError: the backend has no names.
    """
    with settings.overrides(in_prefix=prefix):
        if backend.__name__ not in (RING_BACKEND, FAKE_BACKEND):
            raise StateError("ZMQ endpoint has no file to remove; use the msgq backend", name)
        ring, prefix = import_module("msgq.impl.ring.core"), backends.resolve_prefix(prefix, backend)
        with ring.TopicLock(name, prefix) as ring_exists:
            removed: bool = ring.unlink_topic(name, prefix) if ring_exists else ring.unlink_orphan(name, prefix)
    if not removed:
        raise SegmentError("topic not found", name, errno=errno.ENOENT)


def read_topic_stats(backend: ModuleType, name: str, prefix: str) -> Any:
    """Return an object with the topic's `schema` and `data_bytes`; None: unknown, with ZMQ.

    Raises:
        SegmentError: the topic does not exist.
    """
    if backend.__name__ not in (RING_BACKEND, FAKE_BACKEND):
        return None
    return get_kind("topic").stats.open_watch(name, backends.resolve_prefix(prefix, backend)).stats()

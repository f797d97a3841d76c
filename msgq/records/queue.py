"""Queues of records: arrays in, arrays out. Each consumer receives all records."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from msgq.channel.channel import Channel
from msgq.common import naming, settings
from msgq.common.dtype_descriptions import record_dtype
from msgq.errors import ConcurrentUseError, InvalidValueError, MessageSizeError
from msgq.impl import backend as backends
from msgq.impl.base import event_loop
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.base.origin import origin_time as thread_origin
from msgq.impl.records.arrays import STAMP_FIELDS, convert_records, is_tracked_dtype
from msgq.records.channel_transport import ChannelTransport
from msgq.records.clocks import find_stamp_clock
from msgq.records.record_transport import RecordTransport
from msgq.records.stamps import STAMP_FIELDS_BYTES, fill_stamps, remove_stamp_fields
from msgq.records.topic_transport import TopicTransport, unlink_queue_topic

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.common.stats.channel import ChannelSubscriber, PublisherInfo
    from msgq.common.stats.topic import SubscriberStats

ORIGIN_TIME_MAX_NS = 2**63 - 1


@add_advice
class RecordQueue:
    """A queue of NumPy records. Each consumer receives all records (docs/guides/records.md).

    Producers never wait. A consumer receives records that are produced after it opened the queue. A consumer that is
    slower than the capacity allows loses records, and `lost` is their exact number. ::

        producers "single"    one producer at a time, on a topic of that name: the newest producer takes over, and the
                              previous one gets MultiplePublishersError
        producers "multiple"  any number of producers, on a channel of that name; the records of all have one order

    One thread at a time may produce with an object, and one thread may consume. A further thread gets
    `ConcurrentUseError`. A forked child continues to consume independently. With "multiple", its first `produce`
    registers another producer. With "single", its first `produce` takes over from the parent. A closed queue raises
    `EndpointClosedError`.

    Attributes
    ----------
    name, prefix, producers : arguments of the constructor; "" is no prefix.
    dtype : dtype of the records.
    """

    def __init__(
        self,
        name: str | bytes,
        dtype: npt.DTypeLike | None = None,
        capacity: int | None = None,
        *,
        producers: Literal["single", "multiple"] = "single",
        create: bool | None = None,
        history: int = 0,
        on_lost: Literal["count", "raise"] = "count",
        prefix: str | None = None,
        trust: str | None = None,
        spin_us: int | None = None,
    ) -> None:
        """Open the queue, or create it, and consume from now on.

        Parameters
        ----------
        name : name of the topic or channel.
        dtype : dtype of the records, without Python objects. `msgq.tracked` returns a dtype with timestamps. None: the
            dtype of the existing queue.
        capacity : number of records that stay for slower consumers, rounded up to a power of two; at most 8192 with
            "multiple". None: the existing capacity, or 4096 for a new queue.
        producers : "single" or "multiple", see above. "multiple" needs the backend msgq or fake. With ZMQ, `lost` is
            None.
        create : True: create a new queue only. False: open an existing queue only. None: either. Not with ZMQ, which
            has no files.
        history : number of earlier records to consume first, as far as they still exist; with "multiple" only.
        on_lost : "count": losses add to `lost` only. "raise": the next call raises LostMessagesError, once for each
            loss.
        prefix : prefix of the queue, "" for none; None: OPENPILOT_PREFIX.
        trust : users whose files are accepted besides own files and root's; None: MSGQ_TRUST.
        spin_us : microseconds that a consumer polls before it sleeps; None: MSGQ_SPIN_US.

        Raises
        ------
        RecordMismatchError : the queue has another dtype, or the topic or channel is not a queue of records.
        RecordTypeError : the dtype is not allowed for records.
        InvalidValueError : the dtype is missing for a new queue, or another argument is invalid.
        SegmentSizeError, ChannelMismatchError : the queue exists with another capacity.
        SegmentError : the files cannot be opened or created.
        EndpointNameError, BackendNotAvailableError, TooManySubscribersError : see `SubSocket.connect` and `Channel`.
        """
        channel = producers == "multiple"
        self.name = naming.validate_channel_name(name) if channel else naming.validate_endpoint_name(name)
        self._check_options(producers, history, on_lost)
        self.prefix = settings.resolve_prefix(prefix)
        self.producers = producers
        asked = None if dtype is None else record_dtype(dtype, self.name)
        self._reset_locks()
        raises = on_lost == "raise"
        self._transport: RecordTransport
        if channel:
            self._transport = ChannelTransport(
                self.name, self.prefix, asked, capacity, create, history, raises, trust, spin_us
            )
        else:
            self._transport = TopicTransport(self.name, self.prefix, asked, capacity, create, raises, trust, spin_us)
        _open_queues.add(self)
        self.dtype = self._last_equal_dtype = self._transport.dtype  # equal, and the same object as that of what comes
        self._clock = find_stamp_clock(backends.current_backend())
        self._tracked = is_tracked_dtype(self.dtype)
        self._payload_dtype = remove_stamp_fields(self.dtype) if self._tracked else self.dtype

    def _reset_locks(self) -> None:
        """Create new locks. In a forked child, the previous locks belong to the parent."""
        self._producing_lock, self._consuming_lock = threading.Lock(), threading.Lock()

    def _check_options(self, producers: str, history: int, on_lost: str) -> None:
        for action, value, allowed in (
            ("producers", producers, ("single", "multiple")),
            ("on_lost", on_lost, ("count", "raise")),
        ):
            if value not in allowed:
                raise InvalidValueError(f"{action} is {value!r}; give {' or '.join(map(repr, allowed))}", self.name)
        if history and producers == "single":
            raise InvalidValueError('history needs producers="multiple": topics keep no history', self.name)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.dtype}"
        return f"<msgq RecordQueue {self.name!r}, {self.producers}, {state}>"

    # ---- what is known ----

    @property
    def endpoint(self) -> str:
        """Name of the endpoint as in `msgq list`: with the prefix "channel/" if the queue is a channel."""
        return naming.CHANNEL_NAME_PREFIX + self.name if self.producers == "multiple" else self.name

    @property
    def capacity(self) -> int:
        """Number of records that stay for slower consumers, of the existing queue.

        In a topic of another program, a power of two. 0: the topic may be too small for one record.
        """
        return self._transport.capacity

    @property
    def lost(self) -> int | None:
        """Number of records since the opening that this consumer will never receive. None: unknown, with ZMQ.

        If a call increases `lost`, the lost records precede the first record that the call returned, or would return
        next.
        """
        return self._transport.lost

    def stats(self) -> SubscriberStats | ChannelSubscriber:
        """Return the counters of this consumer: `SubscriberStats`, or `ChannelSubscriber` with "multiple"."""
        stats: SubscriberStats | ChannelSubscriber = self._transport.subscriber.stats()
        return stats

    @property
    def closed(self) -> bool:
        """True after `close`."""
        closed: bool = self._transport.subscriber.closed
        return closed

    # ---- producing ----

    def produce(self, records: Any, *, origin_time: int = 0) -> int:
        """Publish one record, or the records of an array, oldest first.

        Parameters
        ----------
        records : an array of 0 or 1 dimensions, or values that NumPy converts to such an array: tuples, a list of
            tuples. The dtype must be the queue's, or castable to it within its kind. Records of a tracked queue may
            omit the timestamps; values that are no array have none.
        origin_time : time of the event that caused the records, in nanoseconds of the host's clock. 0: the thread's
            origin (docs/guides/tracking.md), or each record is an origin. For tracked records, and with "multiple".

        Returns
        -------
        Number of the first record among all records of the queue. Records of other producers may have numbers in
        between. With ZMQ, the number counts from the connection of this producer.

        Raises
        ------
        RecordTypeError : the records have another dtype. The text shows both.
        RecordMismatchError : another producer changed the dtype of the queue.
        InvalidValueError : the array has more than one dimension, a value cannot be converted, or `origin_time` cannot
            be stored.
        MultiplePublishersError : with "single", another producer took over. Nothing was published.
        MessageTooLargeError : with "single", another program created a topic that is too small for such records.
        PoolExhaustedError, TooManyPublishersError, SegmentError : with "multiple", as for channels.
        EndpointClosedError : the queue is closed.
        ConcurrentUseError : another thread produces.

        Notes
        -----
        The first call registers the producer. `produce` copies the records and never waits for consumers.
        """
        if origin_time:
            self._check_origin_time(origin_time)
        lock = self._producing_lock
        if not lock.acquire(blocking=False):
            raise self._concurrent_use_error("produces")
        try:
            made = self._add_stamps(records, origin_time) if self._tracked else self._convert_to_array(records)
            return self._transport.send(made, origin_time) if len(made) else self._transport.get_next_number()
        finally:
            lock.release()

    send = produce

    def _check_origin_time(self, origin_time: int) -> None:
        if not 0 < origin_time <= ORIGIN_TIME_MAX_NS:
            raise InvalidValueError(
                f"origin_time is {origin_time}; give nanoseconds, 0 to {ORIGIN_TIME_MAX_NS}", self.name
            )
        if not self._tracked and self.producers == "single":
            text = "origin_time cannot be stored in this dtype; create the queue with a dtype of msgq.tracked"
            raise InvalidValueError(text, self.name)

    def _convert_to_array(self, records: Any) -> npt.NDArray[Any]:
        kind = type(records)
        if (
            kind is np.ndarray
            and records.ndim == 1
            and self._is_record_dtype(records.dtype)
            and records.flags.c_contiguous
        ):
            return records  # type: ignore[no-any-return]
        if kind is np.void and self._is_record_dtype(records.dtype):
            return np.asarray(records).reshape(1)
        return convert_records(records, self.dtype, self.name)

    def _is_record_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Return True for the dtype of the records. The comparison of two large dtypes takes half a microsecond."""
        if dtype is not self._last_equal_dtype and dtype == self.dtype:
            self._last_equal_dtype = dtype
        return dtype is self._last_equal_dtype

    def _add_stamps(self, records: Any, origin_time: int) -> npt.NDArray[Any]:
        """Return a copy of records with timestamps."""
        names = getattr(getattr(records, "dtype", None), "names", None)
        if names is not None and names[:2] == STAMP_FIELDS:
            made = self._convert_to_array(records).copy()
        else:
            bare = convert_records(records, self._payload_dtype, self.name)
            made = np.empty(len(bare), self.dtype)
            if len(bare):
                made.view("u1").reshape(len(bare), -1)[:, STAMP_FIELDS_BYTES:] = bare.view("u1").reshape(len(bare), -1)
        fill_stamps(made, origin_time or thread_origin(), self._clock)
        return made

    # ---- consuming ----

    def consume(self, limit: int | None = None, timeout: float | None = None) -> npt.NDArray[Any]:
        """Take the available records, oldest first. If no record is available, wait for one, by default without limit.

        Parameters
        ----------
        limit : maximum number of records; None takes all.
        timeout : seconds to wait for the first record; 0 does not wait, None waits without limit.

        Returns
        -------
        A new array of the queue's dtype, shape (records,). The records are consecutive: the array ends before a loss.
        The array is empty after the time-out.

        Raises
        ------
        LostMessagesError : records were lost, with ``on_lost="raise"``. The next call continues after the loss.
        RecordMismatchError : the records have another dtype.
        MessageSizeError : a message of another program has another size.
        InvalidValueError : `limit` is negative, or the time-out is invalid.
        CorruptSegmentError : another program wrote invalid data. The next call continues after the data.
        EndpointClosedError : the queue is closed.
        ConcurrentUseError : another thread consumes.

        Notes
        -----
        The GIL is released while the call sleeps, and signal handlers run. Time-outs of topics are rounded up to
        milliseconds.
        """
        lock = self._consuming_lock
        if not lock.acquire(blocking=False):
            raise self._concurrent_use_error("consumes")
        try:
            return self._transport.receive(self._check_record_limit(limit), timeout)
        finally:
            lock.release()

    def consume_with_publishers(
        self, limit: int | None = None, timeout: float | None = None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """Do the same as `consume`, and also return the producer of each record in a list. With "multiple" only.

        Parameters
        ----------
        limit, timeout : as in `consume`.

        Raises
        ------
        StateError : the queue has the mode "single".
        As `consume`.
        """
        lock = self._consuming_lock
        if not lock.acquire(blocking=False):
            raise self._concurrent_use_error("consumes")
        try:
            return self._transport.receive_with_publishers(self._check_record_limit(limit), timeout)
        finally:
            lock.release()

    def _check_record_limit(self, limit: int | None) -> int | None:
        if limit is not None and limit < 0:
            raise InvalidValueError(f"limit is {limit}; give 0 or more, or None for all", self.name)
        return limit

    def _concurrent_use_error(self, action: str) -> ConcurrentUseError:
        return ConcurrentUseError(
            f"another thread {action} with this queue; use a queue object for each thread", self.name
        )

    def receive(self, timeout: float | None = None) -> np.void | Any | None:
        """Take one record. Return None if no record arrived within `timeout` seconds. `consume` takes many records."""
        lock = self._consuming_lock
        if not lock.acquire(blocking=False):
            raise self._concurrent_use_error("consumes")
        try:
            data = self._transport.take_record(timeout)
        finally:
            lock.release()
        return None if data is None else self._parse_record(data)

    def _parse_record(self, data: bytes) -> Any:
        if len(data) != self.dtype.itemsize:
            text = f"message has {len(data)} bytes, but records have {self.dtype.itemsize}; another program sent it"
            raise MessageSizeError(text, self.name)
        return np.frombuffer(data, self.dtype)[0]

    def __iter__(self) -> Self:
        """Return the queue. ``for record in queue`` takes one record after the other, without end."""
        return self

    def __next__(self) -> Any:
        return self.receive()

    # ---- waiting ----

    @property
    def _reader(self) -> Any:
        """Handle that pollers wait for."""
        return self._transport.subscriber

    def fileno(self) -> int:
        """Return a descriptor that is readable while records are available; see `SubSocket.fileno`."""
        fd: int = self._transport.subscriber.fileno()
        return fd

    async def aconsume(self, limit: int | None = None) -> npt.NDArray[Any]:
        """Do the same as `consume` in an asyncio task. A cancelled call takes no record.

        Raises
        ------
        ConcurrentUseError : another task waits for records of the queue.
        As `consume`.
        """
        while not len(records := self.consume(limit, 0)) and limit != 0:
            await event_loop.wait_readable_async([self._transport.subscriber])
        return records

    def __aiter__(self) -> Self:
        return self

    async def areceive(self) -> Any:
        """Take one record in an asyncio task. A cancelled call takes no record. The errors are those of `aconsume`."""
        return (await self.aconsume(1))[0]

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self.areceive()

    # ---- the end ----

    def unlink(self) -> None:
        """Remove the name. Open queues continue to exchange records. A later open creates another queue.

        With a single producer, this needs a producer that has sent before: the first send of a producer opens the
        name.

        Raises
        ------
        SegmentError : the name was removed before, or cannot be removed, or another process that opens the queue held
            its lock for over 5 s.
        StateError : the backend is ZMQ, which has no names.
        """
        self._transport.unlink()

    @staticmethod
    def unlink_name(
        name: str | bytes, prefix: str | None = None, *, producers: Literal["single", "multiple"] = "single"
    ) -> None:
        """Remove the name of a queue without opening it. Raises the errors of `unlink`.

        Parameters
        ----------
        name, prefix, producers : as in the constructor.
        """
        if producers == "multiple":
            Channel.unlink_name(name, prefix)
        else:
            unlink_queue_topic(
                backends.current_backend(), naming.validate_endpoint_name(name), settings.resolve_prefix(prefix)
            )

    def close(self) -> None:
        """Close the queue. Other consumers can still receive the produced records. A second close has no effect.

        A wait of another thread in this queue ends.
        """
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_open_queues: weakref.WeakSet[RecordQueue] = weakref.WeakSet()


def _reset_queues_in_child() -> None:
    for queue in list(_open_queues):
        queue._reset_locks()
        queue._transport.detach_inherited_producer()


os.register_at_fork(after_in_child=_reset_queues_in_child)

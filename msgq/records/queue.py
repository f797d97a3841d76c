"""A queue of records: arrays in, arrays out. Each consumer receives all records."""

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
from msgq.common.dtypes import record_dtype
from msgq.errors import ConcurrentUseError, InvalidValueError, MessageSizeError
from msgq.impl import backend as backends
from msgq.impl.base import event_loop
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


class RecordQueue:
    """A queue of NumPy records. Each consumer receives all records (records.md).

    Producers never wait. A consumer receives records that are produced after it opened the queue. A consumer that is
    slower than the capacity allows loses records, and `lost` is their exact number. ::

        producers "single"    one producer at a time, on a topic of that name: the newest producer takes over, and the
                              previous one gets MultiplePublishersError
        producers "multiple"  any number of producers, on a channel of that name; the records of all have one order

    One thread at a time may produce with an object, and one consume; another one gets `ConcurrentUseError`. A forked
    child continues to consume by itself. Its first `produce` makes it another producer with "multiple", and takes over
    with "single". A closed queue raises `EndpointClosedError`.

    Attributes
    ----------
    name, prefix, producers : as they were given; "" is no prefix.
    dtype : of the records.
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
        """Open the queue, or make it, and consume from now on.

        Parameters
        ----------
        name : of the topic or channel.
        dtype : of the records, without Python objects; `msgq.tracked` makes one with stamps. None: as the queue says.
        capacity : records that stay for slower consumers, rounded up to a power of two; up to 8192 with "multiple".
            None: the existing capacity, or 4096 for a new queue.
        producers : "single" or "multiple", see above. Only msgq and fake have "multiple"; with ZMQ, `lost` is unknown.
        create : True: only create the queue; False: only open it; None: either. Not with ZMQ, which has no files.
        history : earlier records to consume first, as many as are still there; with "multiple" only.
        on_lost : "count": only `lost` tells; "raise": the next call raises LostMessagesError, once for each loss.
        prefix : instead of OPENPILOT_PREFIX, "" for none.
        trust : whose files are used as one's own are; None: MSGQ_TRUST.
        spin_us : microseconds that a consumer spins before it sleeps; None: MSGQ_SPIN_US.

        Raises
        ------
        RecordMismatchError : the queue has records of another dtype, or is none. The text shows both.
        RecordTypeError : records cannot have this dtype.
        InvalidValueError : nobody says a dtype; another argument makes no sense.
        SegmentSizeError, ChannelMismatchError : the queue is there, and its capacity another one than that given.
        SegmentError : its files cannot be opened or made.
        EndpointNameError, BackendNotAvailableError, TooManySubscribersError : as `SubSocket.connect` and `Channel`.
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
        """Nobody uses it; in a forked child those who did are the parent's."""
        self._producing_lock, self._consuming_lock = threading.Lock(), threading.Lock()

    def _check_options(self, producers: str, history: int, on_lost: str) -> None:
        for action, value, allowed in (
            ("producers", producers, ("single", "multiple")),
            ("on_lost", on_lost, ("count", "raise")),
        ):
            if value not in allowed:
                raise InvalidValueError(f"{action} is {value!r}; give {' or '.join(map(repr, allowed))}", self.name)
        if history and producers == "single":
            raise InvalidValueError('a topic keeps no history; a queue with producers="multiple" does', self.name)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.dtype}"
        return f"<msgq RecordQueue {self.name!r}, {self.producers}, {state}>"

    # ---- what is known ----

    @property
    def endpoint(self) -> str:
        """The name, with its mark where the queue is a channel: as `msgq list` has it."""
        return naming.CHANNEL_NAME_PREFIX + self.name if self.producers == "multiple" else self.name

    @property
    def capacity(self) -> int:
        """Records that stay for those who are slower: of the queue that is there, whatever was asked for.

        In a topic that others made, a power of two; 0: it is not sure that even one record stays.
        """
        return self._transport.capacity

    @property
    def lost(self) -> int | None:
        """Records since this was opened that it will never consume. None: unknown, with ZMQ.

        What it grew by in a call lay right before the first record that the call returned, or would return next.
        """
        return self._transport.lost

    def stats(self) -> SubscriberStats | ChannelSubscriber:
        """Return the counters of this consumer: of a topic's subscriber, or of a channel's with "multiple"."""
        stats: SubscriberStats | ChannelSubscriber = self._transport.subscriber.stats()
        return stats

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        closed: bool = self._transport.subscriber.closed
        return closed

    # ---- producing ----

    def produce(self, records: Any, *, origin_time: int = 0) -> int:
        """Publish one record, or the records of an array, oldest first.

        Parameters
        ----------
        records : an array of no dimension or one, or what NumPy makes such of: tuples, a list of tuples. Of the queue's
            dtype, or one that can be cast to it within its kind; records of a tracked queue may lack the stamps, and
            what is no array has none.
        origin_time : when that came about which they are made from, nanoseconds of the host's clock; 0: the thread's
            origin (tracking.md), or each record is an origin. For tracked records, and with "multiple".

        Returns
        -------
        The number of the first record among all of the queue; those of other producers may lie between it and the
        next. With ZMQ it is counted from when this producer connected.

        Raises
        ------
        RecordTypeError : they are of another kind. The text shows both dtypes.
        RecordMismatchError : others produce records of another dtype since.
        InvalidValueError : more than one dimension; a value that cannot be converted; an origin that cannot be told.
        MultiplePublishersError : with "single", another producer took over. Nothing was published.
        MessageTooLargeError : with "single", the topic was made by others, too small for such records.
        PoolExhaustedError, TooManyPublishersError, SegmentError : with "multiple", as for channels.
        EndpointClosedError, ConcurrentUseError : see above.

        Notes
        -----
        The first call makes the producer. Records are copied, and never wait for consumers.
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
            text = "these records have no place for an origin_time; give the queue a dtype of msgq.tracked"
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
        """Return whether it is that of the records. To compare two of many fields takes half a microsecond."""
        if dtype is not self._last_equal_dtype and dtype == self.dtype:
            self._last_equal_dtype = dtype
        return dtype is self._last_equal_dtype

    def _add_stamps(self, records: Any, origin_time: int) -> npt.NDArray[Any]:
        """Return a copy of records with stamps."""
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
        """Take the records that are there, oldest first. Wait for one if there is none, by default without end.

        Parameters
        ----------
        limit : the most records to take; None takes all.
        timeout : seconds to wait for the first; 0 does not wait, None waits for ever.

        Returns
        -------
        A new array of the queue's dtype, shape (records,): consecutive ones, it ends before a loss. Empty when there
        was none in time.

        Raises
        ------
        LostMessagesError : records were lost, with ``on_lost="raise"``; the next call goes on behind them.
        RecordMismatchError : they are of another dtype. MessageSizeError: a stranger's message is of another size.
        InvalidValueError : a negative `limit`; a time-out that is not possible.
        CorruptSegmentError : another program wrote there; the next call goes on behind that.
        EndpointClosedError, ConcurrentUseError : see above.

        Notes
        -----
        Sleeps with the GIL released; signal handlers run. Topics count time-outs in milliseconds, rounded up.
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
        """Do what `consume` does, and return the producer of each record in a list. With "multiple" only.

        Raises
        ------
        StateError : with "single".
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
        return ConcurrentUseError(f"another thread {action} with it; one at a time may", self.name)

    def receive(self, timeout: float | None = None) -> np.void | Any | None:
        """Take one record, or None if there was none within `timeout` seconds. `consume` takes many."""
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
            text = f"a message has {len(data)} bytes, and records have {self.dtype.itemsize}: it is no record"
            raise MessageSizeError(text, self.name)
        return np.frombuffer(data, self.dtype)[0]

    def __iter__(self) -> Self:
        """Return the queue: ``for record in queue`` takes one after the other, for ever."""
        return self

    def __next__(self) -> Any:
        return self.receive()

    # ---- waiting ----

    @property
    def _reader(self) -> Any:
        """What pollers wait for."""
        return self._transport.subscriber

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are records; see `SubSocket.fileno`."""
        fd: int = self._transport.subscriber.fileno()
        return fd

    async def aconsume(self, limit: int | None = None) -> npt.NDArray[Any]:
        """Do what `consume` does, in a task of an asyncio loop. A cancelled call takes nothing.

        Raises
        ------
        ConcurrentUseError : another task waits for it.
        As `consume`.
        """
        while not len(records := self.consume(limit, 0)) and limit != 0:
            await event_loop.wait_readable_async([self._transport.subscriber])
        return records

    def __aiter__(self) -> Self:
        return self

    async def areceive(self) -> Any:
        """Take one record, in a task of an asyncio loop. A cancelled call takes nothing. Errors: see `aconsume`."""
        return (await self.aconsume(1))[0]

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self.areceive()

    # ---- the end ----

    def unlink(self) -> None:
        """Remove the name. Open queues continue among themselves; the next one to open it creates another queue.

        Raises
        ------
        SegmentError : the name was removed before, or cannot be removed; or another process that opens the queue holds
            its lock for over 5 s.
        StateError : with ZMQ, which has no names.
        """
        self._transport.unlink()

    @staticmethod
    def unlink_name(
        name: str | bytes, prefix: str | None = None, *, producers: Literal["single", "multiple"] = "single"
    ) -> None:
        """Remove the name of a queue without opening it. The errors are those of `unlink`."""
        if producers == "multiple":
            Channel.unlink_name(name, prefix)
        else:
            unlink_queue_topic(
                backends.current_backend(), naming.validate_endpoint_name(name), settings.resolve_prefix(prefix)
            )

    def close(self) -> None:
        """Leave; what was produced can still be consumed. Closing twice does nothing. Ends a wait of another thread."""
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

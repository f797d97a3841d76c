"""Queues of records: arrays in, arrays out. Each consumer receives all records."""

from __future__ import annotations

import os
import weakref
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from msgq.channel.channel import Channel
from msgq.common import naming, settings
from msgq.common.dtype_descriptions import record_dtype
from msgq.errors import InvalidValueError
from msgq.impl import backend as backends
from msgq.impl.base import event_loop
from msgq.impl.base.foreign_names import add_advice
from msgq.records.channel_transport import ChannelTransport
from msgq.records.clocks import find_stamp_clock
from msgq.records.core import RecordQueueBase
from msgq.records.record_transport import RecordTransport
from msgq.records.topic_transport import TopicTransport, unlink_queue_topic

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.common.stats.channel import ChannelSubscriber
    from msgq.common.stats.topic import SubscriberStats


@add_advice
class RecordQueue(RecordQueueBase):
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
        raises = on_lost == "raise"
        transport: RecordTransport
        if channel:
            transport = ChannelTransport(
                self.name, self.prefix, asked, capacity, create, history, raises, trust, spin_us
            )
        else:
            transport = TopicTransport(self.name, self.prefix, asked, capacity, create, raises, trust, spin_us)
        self._attach_transport(transport, find_stamp_clock(backends.current_backend()))
        _open_queues.add(self)

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

    send = RecordQueueBase.produce

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
        queue._forget_calls_of_parent()
        queue._transport.detach_inherited_producer()


os.register_at_fork(after_in_child=_reset_queues_in_child)

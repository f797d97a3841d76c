"""Queues of records: arrays in, arrays out. Each consumer receives all records."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from msgq.common.stats.channel import ChannelSubscriber, PublisherInfo
from msgq.common.stats.topic import SubscriberStats
from msgq.records.record_transport import RecordTransport

@disjoint_base
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

    Attributes:
        name: name given to the constructor.
        prefix: prefix given to the constructor; "" is no prefix.
        producers: producers given to the constructor.
        dtype: dtype of the records.
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

        Args:
            name: name of the topic or channel.
            dtype: dtype of the records, without Python objects. `msgq.tracked` returns a dtype with timestamps. None:
                the dtype of the existing queue.
            capacity: number of records that stay for slower consumers, rounded up to a power of two; at most 8192 with
                "multiple". None: the existing capacity, or 4096 for a new queue.
            producers: "single" or "multiple", see above. "multiple" needs the backend msgq or fake. With ZMQ, `lost` is
                None.
            create: True: create a new queue only. False: open an existing queue only. None: either. Not with ZMQ, which
                has no files.
            history: number of earlier records to consume first, as far as they still exist; with "multiple" only.
            on_lost: "count": losses add to `lost` only. "raise": the next call raises LostMessagesError, once for each
                loss.
            prefix: prefix of the queue, "" for none; None: OPENPILOT_PREFIX.
            trust: users whose files are accepted besides own files and root's; None: MSGQ_TRUST.
            spin_us: microseconds that a consumer polls before it sleeps; None: MSGQ_SPIN_US.

        Raises:
            RecordMismatchError: the queue has another dtype, or the topic or channel is not a queue of records.
            RecordTypeError: the dtype is not allowed for records.
            InvalidValueError: the dtype is missing for a new queue, or another argument is invalid.
            SegmentSizeError, ChannelMismatchError: the queue exists with another capacity.
            SegmentError: the files cannot be opened or created.
            EndpointNameError, BackendNotAvailableError, TooManySubscribersError: see `SubSocket.connect` and `Channel`.
        """

    _is_producing: bool
    _is_consuming: bool

    @property
    def name(self) -> str:
        """Name of the topic or channel."""

    @property
    def prefix(self) -> str:
        """Prefix of the topic or channel; "": no prefix."""

    @property
    def producers(self) -> Literal["single", "multiple"]:
        """The mode of the queue, as in the constructor."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the records."""

    @property
    def _transport(self) -> RecordTransport: ...
    def _reset_in_child(self) -> None:
        """In a forked child: allow calls, because the threads that use the queue exist in the parent only."""

    @property
    def endpoint(self) -> str:
        """Name of the endpoint as in `msgq list`: with the prefix "channel/" if the queue is a channel."""

    @property
    def capacity(self) -> int:
        """Number of records that stay for slower consumers, of the existing queue.

        In a topic of another program, a power of two. 0: the topic may be too small for one record.
        """

    @property
    def lost(self) -> int | None:
        """Number of records since the opening that this consumer will never receive. None: unknown, with ZMQ.

        If a call increases `lost`, the lost records precede the first record that the call returned, or would return
        next.
        """

    def stats(self) -> SubscriberStats | ChannelSubscriber:
        """Return the counters of this consumer: `SubscriberStats`, or `ChannelSubscriber` with "multiple"."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    def produce(self, records: Any, *, origin_time: int = 0) -> int:
        """Publish one record, or the records of an array, oldest first.

        Args:
            records: an array of 0 or 1 dimensions, or values that NumPy converts to such an array: tuples, a list of
                tuples. A mapping from all field names to values is a record, too. The dtype must be the queue's, or
                castable to it within its kind. Records of a tracked queue may omit the timestamps; values that are no
                array have none.
            origin_time: time of the event that caused the records, in nanoseconds of the host's clock. 0: the thread's
                origin (docs/guides/tracking.md), or each record is an origin. For tracked records, and with "multiple".

        Returns:
            Number of the first record among all records of the queue. Records of other producers may have numbers in
            between. With ZMQ, the number counts from the connection of this producer.

        Raises:
            RecordTypeError: the records have another dtype. The text shows both.
            RecordMismatchError: another producer changed the dtype of the queue.
            InvalidValueError: the array has more than one dimension, a value cannot be converted, or `origin_time`
                cannot be stored.
            MultiplePublishersError: with "single", another producer took over. Nothing was published.
            MessageTooLargeError: with "single", another program created a topic that is too small for such records.
            PoolExhaustedError, TooManyPublishersError, SegmentError: with "multiple", as for channels.
            EndpointClosedError: the queue is closed.
            ConcurrentUseError: another thread produces.

        Notes:
            The first call registers the producer. `produce` copies the records and never waits for consumers.
        """

    def send(self, records: Any, *, origin_time: int = 0) -> int:
        """Do the same as `produce`.

        Args:
            records: as in `produce`.
            origin_time: as in `produce`.
        """

    def consume(self, limit: int | None = None, timeout: float | None = None) -> npt.NDArray[Any]:
        """Take the available records, oldest first. If no record is available, wait for one, by default without limit.

        Args:
            limit: maximum number of records; None takes all.
            timeout: seconds to wait for the first record; 0 does not wait, None waits without limit.

        Returns:
            A new array of the queue's dtype, shape (records,). The records are consecutive: the array ends before a
            loss, and the next call counts it. The array is empty after the time-out.

        Raises:
            LostMessagesError: records were lost, with ``on_lost="raise"``. The next call continues after the loss.
            RecordMismatchError: the records have another dtype.
            MessageSizeError: a message of another program has another size.
            InvalidValueError: `limit` is negative, or the time-out is invalid.
            CorruptSegmentError: another program wrote invalid data. The next call continues after the data.
            EndpointClosedError: the queue is closed.
            ConcurrentUseError: another thread consumes.

        Notes:
            The GIL is released while the call sleeps, and signal handlers run. Time-outs of topics are rounded up to
            milliseconds.
        """

    def consume_with_publishers(
        self, limit: int | None = None, timeout: float | None = None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """Do the same as `consume`, and also return the producer of each record in a list. With "multiple" only.

        Args:
            limit: as in `consume`.
            timeout: as in `consume`.

        Raises:
            StateError: the queue has the mode "single".
            Exception: as `consume`.
        """

    def receive(self, timeout: float | None = None) -> np.void | Any | None:
        """Take one record. Return None if no record arrived within `timeout` seconds. `consume` takes many records."""

    def __iter__(self) -> Self:
        """Return the queue. ``for record in queue`` takes records one by one, and never ends."""

    def __next__(self) -> Any: ...
    @property
    def _reader(self) -> Any:
        """Handle that pollers wait for."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while records are available; see `SubSocket.fileno`."""

    def aconsume(self, limit: int | None = None) -> Coroutine[Any, Any, npt.NDArray[Any]]:
        """Do the same as `consume` in an asyncio task. A cancelled call takes no record.

        Raises:
            ConcurrentUseError: another task waits for records of the queue.
            Exception: as `consume`.
        """

    def __aiter__(self) -> Self: ...
    def areceive(self) -> Coroutine[Any, Any, Any]:
        """Take one record in an asyncio task. A cancelled call takes no record. The errors are those of `aconsume`."""

    def __anext__(self) -> Coroutine[Any, Any, Any]: ...
    def unlink(self) -> None:
        """Remove the name. Open queues continue to exchange records. A later open creates another queue.

        With a single producer, this needs a producer that has sent before: the first send of a producer opens the
        name.

        Raises:
            SegmentError: the name was removed before, or cannot be removed, or another process that opens the queue
                held its lock for over 5 s.
            StateError: the backend is ZMQ, which has no names.
        """

    @staticmethod
    def unlink_name(
        name: str | bytes, prefix: str | None = None, *, producers: Literal["single", "multiple"] = "single"
    ) -> None:
        """Remove the name of a queue without opening it. Raises the errors of `unlink`.

        Args:
            name: as in the constructor.
            prefix: as in the constructor.
            producers: as in the constructor.
        """

    def close(self) -> None:
        """Close the queue. Other consumers can still receive the produced records. A second close has no effect.

        A wait of another thread in this queue ends.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

"""The calls of record queues that produce and consume."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from msgq.common.stats.channel import PublisherInfo
from msgq.records.clocks import StampClock
from msgq.records.record_transport import RecordTransport

@disjoint_base
class RecordQueueBase:
    """Produces and consumes the records of a queue. `RecordQueue` opens the queue.

    Attributes
    ----------
    name : name of the topic or channel.
    dtype : dtype of the records.
    """

    name: str
    _is_producing: bool
    _is_consuming: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the records."""

    @property
    def _transport(self) -> RecordTransport: ...
    def _attach_transport(self, transport: RecordTransport, clock: StampClock) -> None:
        """Use a transport. `clock` returns the timestamps of tracked records."""

    def _forget_calls_of_parent(self) -> None:
        """In a forked child: allow calls, because the threads that use the queue exist in the parent only."""

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

    def consume_with_publishers(
        self, limit: int | None = None, timeout: float | None = None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """Do the same as `consume`, and also return the producer of each record in a list. With "multiple" only.

        Parameters
        ----------
        limit : as in `consume`.
        timeout : as in `consume`.

        Raises
        ------
        StateError : the queue has the mode "single".
        As `consume`.
        """

    def receive(self, timeout: float | None = None) -> np.void | Any | None:
        """Take one record. Return None if no record arrived within `timeout` seconds. `consume` takes many records."""

    def __iter__(self) -> Self:
        """Return the queue. ``for record in queue`` takes one record after the other, without end."""

    def __next__(self) -> Any: ...

"""A message that was taken and is to be acknowledged."""

from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

@disjoint_base
class Job:
    """A message that was taken from a queue, by `MessageQueue.take`, and is its taker's until it ends once.

    `ack` removes the message, `nack` gives it back. ``with queue.take() as job:`` does the first at the end of the
    block, the second if that raised. A job that is deleted, whose handle is closed or whose process dies goes back,
    too: to its old place in the order, so that it is the next one of its priority.

    Any thread may end it; one at a time. It keeps its handle, and works with it. After a fork it is the parent's: the
    child may read `data`, and gets `ForkedSocketError` from `ack` and `nack`.
    """

    def __init__(self) -> None:
        """Raise TypeError: a job comes from `MessageQueue.take`."""

    @property
    def data(self) -> bytes:
        """What was sent: a copy, which stays."""

    @property
    def priority(self) -> int:
        """Its priority, 0 to 32767."""

    @property
    def deliveries(self) -> int:
        """How often the message was received or taken, this time included. Above 1: somebody else did not end it."""

    @property
    def sent_time(self) -> int:
        """When it was sent, nanoseconds of the host's clock (clock.md)."""

    @property
    def origin_time(self) -> int:
        """What its sender gave with it, nanoseconds; 0: nothing."""

    def ack(self) -> None:
        """Remove the message from the queue: the work is done.

        Raises
        ------
        LeaseExpiredError : its lease was over, and the message went back; somebody else may do the work again.
        StateError : the job has ended before.
        EndpointClosedError : the handle was closed, and the message went back.
        ForkedSocketError : the job is the parent's.
        """

    def nack(self) -> None:
        """Give the message back to its place in the order. If its lease was over, it is there already.

        Raises
        ------
        StateError, EndpointClosedError, ForkedSocketError : as `ack`.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

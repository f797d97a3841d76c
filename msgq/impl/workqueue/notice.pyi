"""Notifications of work queues, apart from who is told."""

from typing import Self

from typing_extensions import disjoint_base

from msgq.impl.base.waiting import Waitable
from msgq.impl.workqueue.handle import Handle

@disjoint_base
class Notice(Waitable):
    """That somebody wants to know when a message comes to an empty queue. One thread at a time.

    As long as it is open senders look whether the queue is empty. Its descriptor is readable when a message came.
    """

    def __new__(cls, queue: Handle) -> Self: ...
    def taken(self) -> bool:
        """Return whether a message came to the empty queue since the last call."""

def exclusive_notice(queue: Handle) -> Notice | None:
    """Return a notice, unless another living process has one of the same queue."""

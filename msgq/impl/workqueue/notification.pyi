"""Notifications of work queues, without what they call."""

from typing import Self

from typing_extensions import disjoint_base

from msgq.impl.base.waiting import Waitable
from msgq.impl.workqueue.handle import Handle

@disjoint_base
class QueueNotification(Waitable):
    """A request to be notified when a message comes to an empty queue. One thread at a time.

    While it is open, senders check whether the queue is empty. Its descriptor is readable when a message came.
    """

    def __new__(cls, queue: Handle) -> Self: ...
    def consume(self) -> bool:
        """Return whether a message came to the empty queue since the last call."""

def new_exclusive_notification(queue: Handle) -> QueueNotification | None:
    """Return a notification, unless another living process has one of the same queue."""

"""Work queues in shared memory: each message goes to one consumer, the highest priority first."""

from msgq.impl.workqueue.core import Job, MessageQueue
from msgq.impl.workqueue.message import Message

__all__ = ["Job", "Message", "MessageQueue"]

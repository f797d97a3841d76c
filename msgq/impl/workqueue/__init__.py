"""Work queues over shared memory: each message for one consumer, the most urgent first."""

from msgq.impl.workqueue.core import Job, MessageQueue
from msgq.impl.workqueue.message import Message

__all__ = ["Job", "Message", "MessageQueue"]

"""Work queues over shared memory: each message for one consumer, the most urgent first."""

from msgq.impl.workqueue.job import Job
from msgq.impl.workqueue.message import Message
from msgq.impl.workqueue.queue import MessageQueue

__all__ = ["Job", "Message", "MessageQueue"]

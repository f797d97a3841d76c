"""The error that is also a `queue.Full`."""

from __future__ import annotations

import errno
import queue

from msgq.errors.base import IpcError


class QueueFullError(IpcError, queue.Full):
    """A work queue had no free slot in time. The message was not sent.

    `send` checks the slots one after the other. The error is therefore possible even if the queue was never full at one
    instant. `errno` is ETIMEDOUT after a wait, otherwise EAGAIN.
    """

    __module__ = "msgq.errors"  # public module of the class

    errno = errno.EAGAIN

"""The worker's way to the reply queues of clients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from msgq.errors import EndpointNameError, QueueFullError, SegmentError, SegmentNotFoundError
from msgq.impl import backend
from msgq.workqueue.envelope import EnvelopeType, join_envelope, name_reply_queue, split_envelope

if TYPE_CHECKING:
    from msgq.common.stats.workqueue import QueueStats
    from msgq.impl.workqueue import MessageQueue

REOPEN_SECONDS = 1.0  # pause between two checks of a worker whether a client lives


class ReplyQueueFullError(QueueFullError):
    """A client has not received its previous replies. A worker catches this error: no user sees it."""


class OpenReplyQueue(NamedTuple):
    """A reply queue that is open until a time of `backend.monotonic`."""

    queue: MessageQueue
    close_time: float


class ReplySender:
    """Sends replies. Reply queues stay open for a second, so that a dead client's memory is soon free."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._reply_queues: dict[str, OpenReplyQueue] = {}

    @property
    def has_open_queues(self) -> bool:
        """True if a reply queue is open."""
        return bool(self._reply_queues)

    def send(self, client_id: str, reply_type: EnvelopeType, number: int, result: object, reason: str = "") -> bool:
        """Send the reply to a call without a wait. Return False if the client is gone.

        If a full queue has a reply to the same call already, this reply is dropped: the client ignores second replies.

        Raises:
            ReplyQueueFullError: the client has not received its previous replies, and has no reply to this call.
            InvalidTypeError: the result has no bytes.
            MessageTooLargeError: the reply exceeds the client's `max_result_size`.
            SegmentError, TooManyHandlesError: the reply queue cannot be opened.
        """
        reply = join_envelope(result, reply_type, number, reason)
        open_queue = self._reply_queues.get(client_id)
        if open_queue is None or open_queue.close_time < backend.monotonic():
            self._close_old_queues()
            queue = self._open_reply_queue(client_id)
            if queue is None:
                return False
            open_queue = OpenReplyQueue(queue, backend.monotonic() + REOPEN_SECONDS)
            self._reply_queues[client_id] = open_queue
        try:
            open_queue.queue.send(reply, timeout=0)
        except QueueFullError as error:
            if all(split_envelope(waiting.data).number != number for waiting in open_queue.queue.peek()):
                raise ReplyQueueFullError(str(error)) from None
        return True

    def close(self) -> None:
        """Close all reply queues."""
        while self._reply_queues:
            self._reply_queues.popitem()[1].queue.close()

    def _close_old_queues(self) -> None:
        now = backend.monotonic()
        for client_id in [name for name, each in self._reply_queues.items() if each.close_time < now]:
            self._reply_queues.pop(client_id).queue.close()

    def _open_reply_queue(self, client_id: str) -> MessageQueue | None:
        """Return the open reply queue of a client. Remove the reply queue of a dead client, and return None."""
        name = name_reply_queue(self._queue.name, client_id)
        try:
            queue = type(self._queue)(name, 0, prefix=self._queue.prefix)
        except (SegmentNotFoundError, EndpointNameError):
            return None
        if has_living_receiver(queue.stats()):
            return queue
        with contextlib.suppress(SegmentError):  # another worker has removed it
            queue.unlink()
        queue.close()
        return None


def has_living_receiver(stats: QueueStats) -> bool:
    """Return True if a process that received from the queue may be alive. Each client receives once at its start."""
    return any(handle.received and handle.participant.alive is not False for handle in stats.handles)

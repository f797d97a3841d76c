"""Sending into work queues from the command line."""

from __future__ import annotations

from msgq.impl.workqueue import MessageQueue
from msgq.kinds.opening import read_existing_schema
from msgq.kinds.publish import KindPublish, PublishOptions, PublishTarget


class QueueTarget(PublishTarget):
    """A work queue in shared memory, for any chosen backend. Created if necessary."""

    def __init__(self, options: PublishOptions) -> None:
        super().__init__(options, read_existing_schema(options.endpoint))

    def _open_endpoint(self) -> None:
        self._queue = MessageQueue(self._name, read=False, schema=self._new_schema)

    def _send_message(self, data: bytes) -> None:
        self._queue.send(data, self._options.priority or 0, timeout=self._options.timeout)

    def _close_endpoint(self) -> None:
        self._queue.close()


PUBLISH = KindPublish(QueueTarget, frozenset({"priority"}))

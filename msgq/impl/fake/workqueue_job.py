"""A job: a taken message. The stub msgq/impl/workqueue/core.pyi documents the methods."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from msgq.errors import EndpointClosedError
from msgq.impl.fake.endpoint_state import fork_error
from msgq.impl.fake.workqueue_store import JobClaim, QueueState
from msgq.impl.workqueue import options


class Job:
    """A taken message, until its acknowledgement. The job keeps its handle."""

    def __init__(self, handle: object, queue: QueueState, claim: JobClaim) -> None:
        self._handle, self._queue, self._claim = handle, queue, claim
        item = claim.item
        self.data, self.priority, self.deliveries = item.data, item.priority, item.deliveries
        self.sent_time, self.origin_time = item.sent_time, item.origin_time

    def __del__(self) -> None:
        claim = vars(self).get("_claim")  # none: it was not made by take()
        if claim is not None and not self._queue.inherited_by_fork:
            claim.revoke_claim()

    def __repr__(self) -> str:
        state = "ended" if self._claim.is_over else "open"
        return f"<msgq fake Job of {self._queue.name!r}, {len(self.data)} bytes, {state}>"

    def ack(self) -> None:
        """Acknowledge the message."""
        self._check_open()
        self._claim.end_job(True)

    def nack(self, delay: float | None = None) -> None:
        """Return the message to its position in the queue, after `delay` seconds."""
        delay_ns = options.delay_ns(delay, self._queue.name)
        self._check_open()
        self._claim.end_job(False, delay_ns)

    def _check_open(self) -> None:
        if self._queue.inherited_by_fork:
            raise fork_error(self._queue.name)
        self._claim.check_valid()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._claim.is_over or self._queue.inherited_by_fork:
            return
        if kind is None:
            self.ack()
            return
        with contextlib.suppress(EndpointClosedError):  # it is back already
            self.nack()

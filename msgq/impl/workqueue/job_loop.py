"""The loop over jobs of a work queue, for all backends."""

from __future__ import annotations

from msgq.impl.base.argument_checks import timeout_ns
from msgq.impl.workqueue import options

TYPE_CHECKING = False  # as in msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def iterate_jobs(queue: Any, timeout: float | None, lease: float | None) -> Iterator[Any]:
    """Return the iterator of `MessageQueue.jobs`, after a check of the arguments."""
    timeout_ns(timeout, queue.endpoint)
    options.lease_ns(lease, queue.endpoint)
    return _take_jobs(queue, timeout, lease)


def _take_jobs(queue: Any, timeout: float | None, lease: float | None) -> Iterator[Any]:
    """Yield jobs. Python closes this generator if the body raises or breaks, and the job then returns to the queue."""
    while (job := queue.take(timeout, lease=lease)) is not None:
        with job:
            yield job

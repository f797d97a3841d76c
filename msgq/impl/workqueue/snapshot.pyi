"""Read a work queue's file for msgq.stats; remove one that nobody uses."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.workqueue import QueueStats

@disjoint_base
class QueueWatch:
    """One work queue, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When the queue is made anew this goes on with the old one (see `msgq.stats.queue_inodes`).

    Raises
    ------
    SegmentError : there is no such queue (ENOENT), or its file cannot be read; by the methods, when it was cut.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return what moves; takes a microsecond."""

    def stats(self) -> QueueStats:
        """Return all of it, with what waits and who lives; see `msgq.stats.queue`."""

def remove_queue(name: str, in_prefix: str, wanted: Callable[[QueueStats], bool]) -> bool:
    """Remove a queue's name if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who open the queue: who comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """

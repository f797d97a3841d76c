"""Read a work queue's file for msgq.stats; remove one that nobody uses."""

from collections.abc import Callable

from msgq.figures import QueueStats

def queue_stats(name: str, in_prefix: str) -> QueueStats:
    """Return how a queue is, see `msgq.stats.queue`. It is mapped read-only; nobody notices."""

def remove_queue(name: str, in_prefix: str, wanted: Callable[[QueueStats], bool]) -> bool:
    """Remove a queue's name if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who open the queue: who comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """

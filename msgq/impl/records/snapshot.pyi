"""Read the file of a vector or board for msgq.stats; remove one that nobody writes."""

from collections.abc import Callable

from msgq.record_figures import RecordStats

def record_stats(name: str, in_prefix: str) -> RecordStats:
    """Return how a vector or board is, see `msgq.stats.record`. It is mapped read-only; nobody notices."""

def remove_record(name: str, in_prefix: str, wanted: Callable[[RecordStats], bool]) -> bool:
    """Remove the name of a vector or board if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who begin to write: who has it open goes on with the removed one, and who
    comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """

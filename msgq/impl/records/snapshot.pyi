"""Read the file of a vector or board for msgq.stats; remove one that nobody writes."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordStats

@disjoint_base
class RecordWatch:
    """One vector or board, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When it is made anew this goes on with the old one (see `msgq.stats.record_inodes`).

    Raises
    ------
    SegmentError : it is not there (ENOENT), or its file cannot be read; by the methods, when it was cut.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return what moves, of a vector in bytes as well; takes a microsecond, however many elements it has."""

    def stats(self) -> RecordStats:
        """Return all of it, with each element looked at, and who lives; see `msgq.stats.record`."""

def remove_record(name: str, in_prefix: str, wanted: Callable[[RecordStats], bool]) -> bool:
    """Remove the name of a vector or board if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who begin to write: who has it open goes on with the removed one, and who
    comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """

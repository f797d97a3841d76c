"""Counts what passes on endpoints of any kind, below Python."""

from collections.abc import Sequence

from typing_extensions import disjoint_base

from msgq.common.stats.meter import MeterReading

@disjoint_base
class Meter:
    """Counts the messages of one endpoint from now on: how many, how often, how large, how old. Made as one of a kind.

    Passive: it takes no place of a reader, writes nothing, and nobody notices it. Its memory (90 KiB) does not grow. It
    counts while `watch` runs, and what came meanwhile as far as that is still there; the rest is `lost`. One thread at
    a time. When the endpoint's file is made anew this goes on with the old one (see `msgq.stats.endpoint_inodes`).
    """

    @property
    def endpoint(self) -> str:
        """The endpoint's name, with its mark."""

    def close(self) -> None:
        """Unmap what it reads. What was counted can still be read."""

    def clear(self) -> None:
        """Begin anew; the next period is the one since the last message before."""

    def reading(self) -> MeterReading:
        """Return what was counted since it was made or cleared."""

def watch(meters: Sequence[Meter], seconds: float, spin: bool = False) -> None:
    """Count on all of these endpoints at once, without the GIL.

    Parameters
    ----------
    meters : any number, of any kinds; two must not be in use by two threads at once.
    seconds : for how long; it looks at least once.
    spin : look all the time, which takes a whole core and sees each message within a fraction of a microsecond.
        Otherwise it naps for 50 us between two looks; messages found by one look share the time between them evenly.

    Raises
    ------
    CorruptSegmentError : somebody wrote nonsense into a file.
    SegmentSizeError : somebody made a file smaller.
    EndpointClosedError : a meter was closed.
    """

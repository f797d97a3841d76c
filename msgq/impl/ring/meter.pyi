"""Count an endpoint's messages below Python, as a passive subscriber."""

from typing_extensions import disjoint_base

from msgq.figures import MeterReading
from msgq.impl.ground.context import Context

@disjoint_base
class Meter:
    """Counts the messages of one endpoint from now on: how many, how often, how large, how old.

    Passive: it takes no reader's place, writes nothing, and publishers do not notice it. Its memory (90 KiB) does not
    grow. It counts while `watch` runs, and what came meanwhile as far as the ring still holds it; the rest is `lost`.
    One thread at a time. When the ring is made anew this goes on with the old one (see `msgq.stats.topic_inodes`).

    Parameters
    ----------
    context : of the connection.
    endpoint : the topic's name; it must exist.
    stamp_offset : the byte of the payload at which a u64 says when it was published, in ns; None: it does not, but
        the stamps of a tracked topic do.
    clock : which clock that time is from: "host" (docs/clock.md), "realtime" or "monotonic".
    """

    def __init__(
        self, context: Context, endpoint: str, stamp_offset: int | None = None, clock: str = "host"
    ) -> None: ...
    @property
    def endpoint(self) -> str:
        """The topic's name."""

    def close(self) -> None:
        """Unmap the ring. What was counted can still be read."""

    def clear(self) -> None:
        """Begin anew; the next period is the one since the last message before."""

    def reading(self) -> MeterReading:
        """Return what was counted since it was made or cleared."""

def watch(meters: list[Meter], seconds: float, spin: bool = False) -> None:
    """Count on all of these endpoints at once, without the GIL.

    Parameters
    ----------
    meters : any number; two must not be in use by two threads at once.
    seconds : for how long.
    spin : look all the time, which takes a whole core and sees each message within a fraction of a microsecond.
        Otherwise it naps for 50 us between two looks; messages found by one look share the time between them evenly.

    Raises
    ------
    CorruptSegmentError : somebody wrote nonsense into a ring.
    EndpointClosedError : a meter was closed.
    """

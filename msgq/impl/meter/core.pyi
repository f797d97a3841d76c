"""Meters of all kinds."""

from collections.abc import Sequence

from typing_extensions import disjoint_base

from msgq.common.stats.meter import MeterReading
from msgq.impl.base.core import Context

@disjoint_base
class EndpointMeter:
    """Counts the messages of one endpoint from now on: how many, how often, how large, how old. Made as one of a kind.

    Passive: it takes no place of a reader, writes nothing, and nobody notices it. Its memory (90 KiB) does not grow. It
    counts while `run_meters` runs. Messages sent between two runs count if they are still there, else as `lost`. One
    thread at a time. If the endpoint's file is made again, the meter keeps the old one (`msgq.stats.endpoint_inodes`).
    """

    @property
    def endpoint(self) -> str:
        """The endpoint's name, with its mark."""

    def close(self) -> None:
        """Unmap what it reads. What was counted can still be read."""

    def reset_counts(self) -> None:
        """Begin anew; the next period is the one since the last message before."""

    def take_reading(self) -> MeterReading:
        """Return what was counted since it was made or cleared."""

def run_meters(meters: Sequence[EndpointMeter], seconds: float, spin: bool = False) -> None:
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

@disjoint_base
class _ChannelSubscriberMeter(EndpointMeter): ...

class ChannelMeter(_ChannelSubscriberMeter):
    """Counts the messages of a channel, of all its publishers, see `Meter`.

    Parameters
    ----------
    name, in_prefix : of the channel; it must exist.
    stamp_offset : the byte of the payload at which a u64 says when it was published, in ns; None: by the time that the
        channel keeps of each message.
    clock : which clock that time is from: "host" (docs/internals/clock.md), "realtime" or "monotonic".
    """

    def __init__(self, name: str, in_prefix: str, stamp_offset: int | None = None, clock: str = "host") -> None: ...

@disjoint_base
class QueueEventsMeter(_ChannelSubscriberMeter):
    """Counts the messages of a work queue that are sent, by the events that it publishes, see `Meter`.

    Their delay is the time that they waited: from when they were sent until they were taken first.

    Parameters
    ----------
    queue, in_prefix : of the queue, which was made with events. Their channel need not exist so far.
    """

    def __init__(self, queue: str, in_prefix: str) -> None: ...

@disjoint_base
class QueueMeter(EndpointMeter):
    """Counts the messages that are sent into a work queue, by the queue's own counts, see `Meter`.

    Nothing is lost, but sizes are not known: messages may be gone when we look. Instead of delays a reading has how
    long those messages have waited by then that still wait.

    Parameters
    ----------
    name, in_prefix : of the queue; it must exist.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...

@disjoint_base
class RecordsMeter(EndpointMeter):
    """Counts the writes of a vector's elements, or of a board's values, see `Meter`.

    Of an element that was written several times between two looks the last write is seen, and the others are `lost`:
    the count of all is exact. The delay is from the time of a write until it was seen. A look is at all elements, and a
    rest of four times as long follows it.

    Parameters
    ----------
    name, in_prefix : of the vector or board; it must exist.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...

@disjoint_base
class TopicMeter(EndpointMeter):
    """Counts the messages of a topic, see `Meter`.

    Parameters
    ----------
    context : of the connection.
    endpoint : the topic's name; it must exist.
    stamp_offset : the byte of the payload at which a u64 says when it was published, in ns; None: it does not, but
        the stamps of a tracked topic do.
    clock : which clock that time is from: "host" (docs/internals/clock.md), "realtime" or "monotonic".
    """

    def __init__(
        self, context: Context, endpoint: str | bytes, stamp_offset: int | None = None, clock: str = "host"
    ) -> None: ...

class PolledMeter(EndpointMeter):
    """Counts messages whose files C cannot read: Python fetches their sizes, about every 50 ms. A subclass has `poll`.

    Parameters
    ----------
    endpoint : the endpoint's name, with its name prefix.
    """

    def __init__(self, endpoint: str) -> None: ...
    def poll(self) -> list[int]:
        """Return the sizes of the messages that came since the last call, in bytes."""

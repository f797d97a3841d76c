"""Meters of all kinds."""

from collections.abc import Sequence

from typing_extensions import disjoint_base

from msgq.common.stats.meter import MeterReading
from msgq.impl.sources.source import EndpointSource

@disjoint_base
class EndpointMeter:
    """Measures the messages of one endpoint from now on: number, rate, sizes and delays. Base of all meters.

    A meter is passive and writes nothing. The memory of a meter (90 KiB) does not grow. A meter measures during
    `run_meters`. Messages published between two runs are measured if they still exist. Otherwise, these messages count
    as `lost`. One thread at a time may use a meter. If the endpoint is removed and created again, the meter still
    measures the old files (`msgq.stats.endpoint_inodes`).
    """

    @property
    def endpoint(self) -> str:
        """Name of the endpoint with the prefix of its kind."""

    def close(self) -> None:
        """Unmap the files. The reading stays available."""

    def reset_counts(self) -> None:
        """Set all counts to 0. The next period begins at the last message."""

    def take_reading(self) -> MeterReading:
        """Return the counts since the creation or the last reset."""

def run_meters(meters: Sequence[EndpointMeter], seconds: float, spin: bool = False) -> None:
    """Measure several endpoints at once, without the GIL.

    Args:
        meters: meters of any kinds. During the call, no other thread may use these meters.
        seconds: duration. Each endpoint is polled at least once.
        spin: True: poll without pause. The call then uses a whole core, and sees each message within 1 us. False: sleep
            50 us between polls. If one poll finds several messages, the time since the previous poll is divided evenly
            among the messages.

    Raises:
        CorruptSegmentError: a file contains invalid data.
        SegmentSizeError: a file was truncated.
        EndpointClosedError: a meter was closed.
    """

@disjoint_base
class SourceMeter(EndpointMeter):
    """Measures the messages that a source takes (`EndpointMeter`).

    The delay is the time from the publishing time of a message to the poll that finds the message. For records, each
    write is a message. If an element was written several times between two polls, the meter sees only the last write.
    The meter counts the other writes as `lost`, so the total is exact. Each poll scans all elements, and is followed by
    a pause of four times the poll's duration.

    Args:
        source: a source that no other code uses. The meter ignores its schema.
        stamp_offset: byte offset in the payload of a u64 with the publishing time in ns; None: the publishing times
            that the endpoint has next to payloads, if any.
        clock: clock of this time: "host" (docs/internals/clock.md), "realtime" or "monotonic".
    """

    def __init__(self, source: EndpointSource, stamp_offset: int | None = None, clock: str = "host") -> None: ...

@disjoint_base
class QueueEventsMeter(SourceMeter):
    """Measures the messages sent into a work queue, from its events (`EndpointMeter`).

    The delay of a message is its waiting time: from the send until the first take.

    Args:
        name: name of a queue with events. The channel of the events need not exist yet.
        in_prefix: prefix of the queue.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...

@disjoint_base
class QueueMeter(EndpointMeter):
    """Measures the messages sent into a work queue, from the counters of the queue (`EndpointMeter`).

    The counts include all messages. The sizes are unknown, because consumers may take messages before the meter reads
    them. A reading has no delays. Instead, a reading has the waiting times of the messages that are in the queue.

    Args:
        name: name of an existing queue.
        in_prefix: prefix of the queue.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...

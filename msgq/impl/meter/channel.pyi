"""Counts a channel's messages, or those of a queue by its events."""

from typing_extensions import disjoint_base

from msgq.impl.meter.meter import Meter

@disjoint_base
class _SubscriberMeter(Meter): ...

class ChannelMeter(_SubscriberMeter):
    """Counts the messages of a channel, of all its publishers, see `Meter`.

    Parameters
    ----------
    name, in_prefix : of the channel; it must exist.
    stamp_offset : the byte of the payload at which a u64 says when it was published, in ns; None: by the time that the
        channel keeps of each message.
    clock : which clock that time is from: "host" (docs/clock.md), "realtime" or "monotonic".
    """

    def __init__(self, name: str, in_prefix: str, stamp_offset: int | None = None, clock: str = "host") -> None: ...

@disjoint_base
class EventsMeter(_SubscriberMeter):
    """Counts the messages of a work queue that are sent, by the events that it publishes, see `Meter`.

    Their delay is the time that they waited: from when they were sent until they were taken first.

    Parameters
    ----------
    queue, in_prefix : of the queue, which was made with events. Their channel need not exist so far.
    """

    def __init__(self, queue: str, in_prefix: str) -> None: ...

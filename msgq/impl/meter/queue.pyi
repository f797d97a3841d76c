"""Counts what is sent into a queue that publishes no events."""

from typing_extensions import disjoint_base

from msgq.impl.meter.meter import Meter

@disjoint_base
class QueueMeter(Meter):
    """Counts the messages that are sent into a work queue, by the queue's own counts, see `Meter`.

    Nothing is lost, but sizes are not known: messages may be gone when we look. Instead of delays a reading has how
    long those messages have waited by then that still wait.

    Parameters
    ----------
    name, in_prefix : of the queue; it must exist.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...

"""Counting what passes on endpoints of any kind, below Python and passively."""

from msgq.impl.meter.core import (
    ChannelMeter,
    EventsMeter,
    Meter,
    PolledMeter,
    QueueMeter,
    RecordsMeter,
    TopicMeter,
    watch,
)

__all__ = [
    "ChannelMeter",
    "EventsMeter",
    "Meter",
    "PolledMeter",
    "QueueMeter",
    "RecordsMeter",
    "TopicMeter",
    "watch",
]

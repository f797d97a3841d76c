"""Counting what passes on endpoints of any kind, below Python and passively."""

from msgq.impl.meter.core import (
    ChannelMeter,
    EndpointMeter,
    PolledMeter,
    QueueEventsMeter,
    QueueMeter,
    RecordsMeter,
    TopicMeter,
    run_meters,
)

__all__ = [
    "ChannelMeter",
    "EndpointMeter",
    "PolledMeter",
    "QueueEventsMeter",
    "QueueMeter",
    "RecordsMeter",
    "TopicMeter",
    "run_meters",
]

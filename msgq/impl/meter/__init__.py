"""Counting what passes on endpoints of any kind, below Python and passively."""

from msgq.impl.meter.channel import ChannelMeter, EventsMeter
from msgq.impl.meter.meter import Meter, watch
from msgq.impl.meter.queue import QueueMeter
from msgq.impl.meter.records import RecordsMeter
from msgq.impl.meter.topic import TopicMeter

__all__ = ["ChannelMeter", "EventsMeter", "Meter", "QueueMeter", "RecordsMeter", "TopicMeter", "watch"]

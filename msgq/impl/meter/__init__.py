"""Counting what passes on endpoints of any kind, below Python and passively."""

from msgq.impl.meter.core import EndpointMeter, QueueEventsMeter, QueueMeter, SourceMeter, run_meters

__all__ = ["EndpointMeter", "QueueEventsMeter", "QueueMeter", "SourceMeter", "run_meters"]

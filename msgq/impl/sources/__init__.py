"""Passive sources of messages, used by recorder and meters."""

from msgq.impl.sources.source import (
    EndpointSource,
    PolledSource,
    open_channel_source,
    open_events_source,
    open_record_source,
    open_topic_source,
)

__all__ = [
    "EndpointSource",
    "PolledSource",
    "open_channel_source",
    "open_events_source",
    "open_record_source",
    "open_topic_source",
]

"""Passive sources of messages, used by recorder and meters."""

from msgq.impl.sources.source import (
    EndpointSource,
    PolledSource,
    SchemaReader,
    open_channel_source,
    open_events_source,
    open_record_source,
    open_topic_source,
)

__all__ = [
    "EndpointSource",
    "PolledSource",
    "SchemaReader",
    "open_channel_source",
    "open_events_source",
    "open_record_source",
    "open_topic_source",
]

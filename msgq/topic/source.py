"""Messages of topics, read by passive subscribers."""

from __future__ import annotations

from itertools import islice

from msgq.impl.ring.core import TopicObserver
from msgq.impl.sources import open_topic_source
from msgq.kinds.source import FEED_BATCH_MESSAGES, EndpointFeed, KindSource, SourceItem, TimeStamps


class TopicFeed(EndpointFeed):
    """Feed of a topic."""

    def __init__(self, name: str, prefix: str, whole: bool) -> None:
        self._source = open_topic_source(name, prefix, whole)
        self._source.read_message_schema()
        self.waitable = self._source.socket

    def take_items(self) -> list[SourceItem]:
        """Return the new messages."""
        received = islice(iter(self._source.receive_with_schema, None), FEED_BATCH_MESSAGES)
        return [SourceItem(data, schema=schema) for data, schema in received]

    @property
    def lost(self) -> int | None:
        """Number of lost messages; None: unknown."""
        return self._source.lost


def _find_stamps(name: str, prefix: str) -> TimeStamps:
    topic = TopicObserver(name, prefix).stats()
    return TimeStamps(topic.tracked, topic.schema)


SOURCE = KindSource(open_topic_source, TopicFeed, find_stamps=_find_stamps)

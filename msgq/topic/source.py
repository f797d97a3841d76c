"""Messages of topics, read by passive subscribers."""

from __future__ import annotations

import itertools

from msgq.common import settings
from msgq.impl.base.core import Context
from msgq.impl.meter import TopicMeter
from msgq.impl.ring.core import TopicObserver
from msgq.impl.sources import open_topic_source
from msgq.kinds.source import EndpointFeed, KindSource, PayloadTime, SourceItem, TimeStamps, describe_lost

_BATCH_MESSAGES = 1000  # messages of one topic before it is another endpoint's turn


class TopicFeed(EndpointFeed):
    """Feed of a topic."""

    def __init__(self, name: str, prefix: str) -> None:
        self._source = open_topic_source(name, prefix, whole=False)
        self._source.read_message_schema()
        self.waitable = self._source.socket
        self._lost: int | None = 0

    def take_items(self, most: int | None) -> list[SourceItem]:
        """Return the new messages."""
        limit = _BATCH_MESSAGES if most is None else min(most, _BATCH_MESSAGES)
        received = iter(self._source.receive_with_schema, None)
        return [SourceItem(data, schema=schema) for data, schema in itertools.islice(received, limit)]

    def describe_losses(self) -> str:
        """Return a text with the number of lost messages."""
        before, self._lost = self._lost, self._source.lost
        if self._lost is None:
            return "" if before is None else describe_lost(None)  # an unknown loss is reported once
        return describe_lost(self._lost - (before or 0))


def _open_meter(name: str, prefix: str, payload_time: PayloadTime | None) -> TopicMeter:
    with settings.overrides(prefix):
        return TopicMeter(Context(), name, *(payload_time or ()))


def _find_stamps(name: str, prefix: str) -> TimeStamps:
    topic = TopicObserver(name, prefix).stats()
    return TimeStamps(topic.tracked, topic.schema)


SOURCE = KindSource(open_topic_source, TopicFeed, _open_meter, _find_stamps)

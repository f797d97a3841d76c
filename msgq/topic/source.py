"""Messages of topics, read by passive subscribers."""

from __future__ import annotations

from msgq.common import settings
from msgq.common.schema import Schema
from msgq.impl.base.core import Context
from msgq.impl.meter import TopicMeter
from msgq.impl.ring import SubSocket
from msgq.impl.ring.core import TopicObserver
from msgq.impl.sources import open_topic_source
from msgq.kinds.source import EndpointFeed, KindSource, PayloadTime, SourceItem, TimeStamps, describe_lost


class TopicFeed(EndpointFeed):
    """Feed of a topic."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name, self._prefix = name, prefix
        self.waitable = self._socket = SubSocket()
        with settings.overrides(prefix):
            self._socket.connect(Context(), name, passive=True)
        self._socket.setTimeout(0)
        self._schema = self._read_schema()
        self._lost: int | None = 0

    def _read_schema(self) -> Schema | None:
        return TopicObserver(self._name, self._prefix).stats().schema

    def take_items(self, most: int | None) -> list[SourceItem]:
        """Return the new messages."""
        messages = self._socket.receive_many(most)
        if messages and self._schema is None:
            self._schema = self._read_schema()
        return [SourceItem(message, schema=self._schema) for message in messages]

    def describe_losses(self) -> str:
        """Return a text with the number of lost messages."""
        before, self._lost = self._lost, self._socket.lost
        if self._lost is None:
            return "" if before is None else describe_lost(None)  # said once: nobody knows how many
        return describe_lost(self._lost - (before or 0))


def _open_meter(name: str, prefix: str, payload_time: PayloadTime | None) -> TopicMeter:
    with settings.overrides(prefix):
        return TopicMeter(Context(), name, *(payload_time or ()))


def _find_stamps(name: str, prefix: str) -> TimeStamps:
    topic = TopicObserver(name, prefix).stats()
    return TimeStamps(topic.tracked, topic.schema)


SOURCE = KindSource(
    open_source=open_topic_source,
    open_feed=TopicFeed,
    open_meter=_open_meter,
    find_stamps=_find_stamps,
    has_better_meter=True,
    schema_begins_epoch=True,
)

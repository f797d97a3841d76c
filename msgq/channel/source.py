"""Messages of channels, read by passive subscribers."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from msgq.common.schema import Schema
from msgq.impl.channel import open_channel_file, open_subscriber
from msgq.impl.sources import open_channel_source
from msgq.kinds.source import FEED_BATCH_MESSAGES, EndpointFeed, KindSource, SourceItem, TimeStamps

ALL_HISTORY = 2**62  # messages of a channel that are still there


class ChannelFeed(EndpointFeed):
    """Feed of a channel in shared memory, for any chosen backend: new messages, and earlier ones if requested."""

    def __init__(self, name: str, prefix: str, history: int = 0) -> None:
        self._channel_file = open_channel_file(name, prefix)
        self.waitable = self._subscriber = open_subscriber(
            self._channel_file, "", history, 0, False, False, False, True, None
        )
        self._schema: Schema | None = None

    def take_items(self) -> list[SourceItem]:
        """Return the new messages with their publishers."""
        received = islice(iter(partial(self._subscriber.receive, 0), None), FEED_BATCH_MESSAGES)
        return [self._make_source_item(data) for data in received]

    def _make_source_item(self, data: bytes) -> SourceItem:
        last: Any = self._subscriber.last
        self._schema = self._channel_file.schema if self._schema is None else self._schema
        facts = {
            "position": last.position,
            "publisher": {"name": last.publisher.name, "pid": last.publisher.pid},
            "publish_time": last.publish_time,
            "origin_time": last.origin_time,
        }
        return SourceItem(data, facts, f"{last.publisher.name} {last.position}", self._schema)

    @property
    def lost(self) -> int | None:
        """Number of lost messages."""
        return self._subscriber.lost


def _read_stamp_settings(name: str, prefix: str) -> TimeStamps:
    channel = open_channel_file(name, prefix).stats()
    return TimeStamps(channel.stamps is not False, channel.schema)


def _open_feed(name: str, prefix: str, whole: bool) -> ChannelFeed:
    return ChannelFeed(name, prefix, ALL_HISTORY if whole else 0)


SOURCE = KindSource(open_channel_source, _open_feed, find_stamps=_read_stamp_settings)

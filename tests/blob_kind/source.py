"""Messages of blobs, read without a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from msgq.errors import SegmentError
from msgq.kinds.source import Feed, Item, KindSource, PayloadTime
from tests.blob_kind.stats import read_messages


class BlobFeed(Feed):
    """The messages that are there, then those that come."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name, self._prefix, self._shown = name, prefix, 0
        read_messages(name, prefix)

    def take(self, most: int | None) -> list[Item]:
        """Return the messages that came since the last call."""
        messages = read_messages(self._name, self._prefix)[self._shown :][:most]
        self._shown += len(messages)
        return [Item(message, {"number": self._shown}) for message in messages]


def _refuse_source(name: str, _prefix: str, _whole: bool, _files: Mapping[str, int] | None) -> NoReturn:
    raise SegmentError("has no source that the recorder could read in C", f"blob/{name}")


def _refuse_meter(name: str, _prefix: str, _payload_time: PayloadTime | None) -> NoReturn:
    raise SegmentError("has no meter", f"blob/{name}")


SOURCE = KindSource(open=_refuse_source, open_feed=BlobFeed, open_meter=_refuse_meter)

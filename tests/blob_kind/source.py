"""Messages of blobs, read without a trace."""

from __future__ import annotations

from collections.abc import Mapping

from msgq.impl.sources import PolledSource
from msgq.kinds.source import EndpointFeed, KindSource, SourceItem
from tests.blob_kind.names import blob_path
from tests.blob_kind.stats import read_messages


class BlobFeed(EndpointFeed):
    """The messages that are there, then those that come."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name, self._prefix, self._shown = name, prefix, 0
        read_messages(name, prefix)

    def take_items(self, most: int | None) -> list[SourceItem]:
        """Return the messages that came since the last call."""
        messages = read_messages(self._name, self._prefix)[self._shown :][:most]
        self._shown += len(messages)
        return [SourceItem(message, {"number": self._shown}) for message in messages]


class BlobSource(PolledSource):
    """The messages of a blob for the recorder: from now on, or all."""

    def __init__(self, name: str, prefix: str, whole: bool) -> None:
        super().__init__(f"blob/{name}", "blob", prefix, blob_path(name, prefix).stat().st_ino)
        self._name, self._in_prefix = name, prefix
        self._read = 0 if whole else len(read_messages(name, prefix))

    def poll(self) -> list[tuple[bytes, int]]:
        """See `PolledSource`."""
        messages = read_messages(self._name, self._in_prefix)[self._read :]
        self._read += len(messages)
        return [(message, 0) for message in messages]


def _open_source(name: str, prefix: str, whole: bool, _files: Mapping[str, int] | None) -> BlobSource:
    read_messages(name, prefix)
    return BlobSource(name, prefix, whole)


SOURCE = KindSource(open_source=_open_source, open_feed=BlobFeed)

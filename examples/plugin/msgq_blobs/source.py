"""Messages of blobs, read without a trace."""

from __future__ import annotations

from msgq.impl.sources import PolledSource
from msgq.kinds.source import make_polled_part
from msgq_blobs.names import blob_path
from msgq_blobs.stats import read_messages


class BlobSource(PolledSource):
    """The messages of a blob: from now on, or all."""

    def __init__(self, name: str, prefix: str, whole: bool) -> None:
        messages = read_messages(name, prefix)
        super().__init__(f"blob/{name}", "blob", prefix, blob_path(name, prefix).stat().st_ino)
        self._name, self._in_prefix, self._read = name, prefix, 0 if whole else len(messages)

    def poll(self) -> list[tuple[bytes, int]]:
        """See `PolledSource`."""
        messages = read_messages(self._name, self._in_prefix)[self._read :]
        self._read += len(messages)
        return [(message, 0) for message in messages]


SOURCE = make_polled_part(BlobSource)

"""Statistics of blobs, read from their files."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgq.common.schema import Schema
from msgq.common.stats import Participant
from msgq.common.stats.endpoint import EndpointCounts
from msgq.errors import SegmentError
from msgq.kinds.stats import EndpointRow, EndpointTotals, KindStats
from msgq_blobs.names import blob_path


def read_messages(name: str, prefix: str) -> list[bytes]:
    """Return the messages of a blob. Raises SegmentError: there is none, or its file is damaged."""
    path = blob_path(name, prefix)
    try:
        return [bytes.fromhex(line) for line in json.loads(path.read_text())]
    except FileNotFoundError:
        raise SegmentError("there is no such blob", f"blob/{name}", str(path), errno.ENOENT) from None
    except (ValueError, TypeError):
        raise SegmentError("is damaged", f"blob/{name}", str(path)) from None


def append(name: str, prefix: str, data: bytes) -> None:
    """Add a message to a blob, which is created if there is none."""
    path = blob_path(name, prefix)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    messages = read_messages(name, prefix) if path.exists() else []
    path.write_text(json.dumps([message.hex() for message in (*messages, data)]))


@dataclass(frozen=True, slots=True)
class BlobStats:
    """A blob, at one moment."""

    name: str
    path: str
    bytes: int
    messages: int
    participants: tuple[tuple[str, Participant], ...] = ()
    schema: Schema | None = None
    created_ns: int | None = None


class BlobWatch:
    """See `msgq.kinds.stats.EndpointWatch`."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name, self._prefix = name, prefix
        read_messages(name, prefix)

    def counts(self) -> EndpointCounts:
        """Return the messages and their bytes."""
        messages = read_messages(self._name, self._prefix)
        return EndpointCounts(len(messages), sum(map(len, messages)), 0)

    def stats(self) -> BlobStats:
        """Return the statistics."""
        counts = self.counts()
        return BlobStats(self._name, str(blob_path(self._name, self._prefix)), counts.bytes or 0, counts.messages)


class BlobRow(EndpointRow[BlobStats, EndpointCounts]):
    """A blob."""

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """See `EndpointRow`."""
        return EndpointTotals(stats.bytes, stats.messages, 0)

    def describe(self) -> Iterator[str]:
        """Yield lines about a blob."""
        yield f"  file         {self.stats.path}"
        yield f"  messages     {self.stats.messages}"


STATS = KindStats(BlobWatch, BlobRow)

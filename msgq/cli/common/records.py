"""Vectors and boards beside topics: `records/NAME`, and what was written there meanwhile."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgq import stats
from msgq.cli.common.looks import Looks
from msgq.naming import RECORDS_MARK
from msgq.stats import RecordStats


@dataclass(frozen=True)
class RecordRow:
    """A vector or board, and what was written there since the look before.

    Attributes
    ----------
    rate : elements written a second; None without a look before.
    """

    stats: RecordStats
    rate: float | None = None

    @property
    def endpoint(self) -> str:
        """What it is called among topics."""
        return RECORDS_MARK + self.stats.name

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        said = {"endpoint": self.endpoint, "dtype": self.stats.dtype, "mode": f"{self.stats.mode:o}"}
        return {**dataclasses.asdict(self.stats), **said, "rate": self.rate}


class Records:
    """The vectors and boards that a verb is about.

    Parameters
    ----------
    texts : names and patterns, for topics among them; none: all of them.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None) -> None:
        self._looks = Looks(texts, prefix, RECORDS_MARK, stats.record_inodes, stats.record)

    def measure(self, seconds: float) -> list[RecordRow]:
        """Return how things are, `seconds` after this was made at the earliest; 0 for no rates."""
        return [_row(*look) for look in self._looks.twice(seconds)]


def _row(now: RecordStats, before: RecordStats | None, elapsed_s: float) -> RecordRow:
    return RecordRow(now) if before is None else RecordRow(now, (now.written - before.written) / elapsed_s)

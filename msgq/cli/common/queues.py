"""Work queues beside topics: `queue/NAME`, and what they did meanwhile."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgq import stats
from msgq.cli.common.looks import Looks
from msgq.naming import QUEUE_MARK
from msgq.stats import QueueStats


@dataclass(frozen=True)
class QueueRow:
    """A work queue, and what it did since the look before.

    Attributes
    ----------
    rate, received_rate : messages a second that were sent, and that were received or taken; None without a look before.
    """

    stats: QueueStats
    rate: float | None = None
    received_rate: float | None = None

    @property
    def endpoint(self) -> str:
        """What it is called among topics."""
        return QUEUE_MARK + self.stats.name

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        said = {"endpoint": self.endpoint, "kind": "queue", "mode": f"{self.stats.mode:o}"}
        return {**dataclasses.asdict(self.stats), **said, "rate": self.rate, "received_rate": self.received_rate}


class Queues:
    """The queues that a verb is about.

    Parameters
    ----------
    texts : names and patterns, for topics among them; none: every queue.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None) -> None:
        self._looks = Looks(texts, prefix, QUEUE_MARK, stats.queue_inodes, stats.queue)

    def measure(self, seconds: float) -> list[QueueRow]:
        """Return how things are, `seconds` after this was made at the earliest; 0 for no rates."""
        return [_row(*look) for look in self._looks.twice(seconds)]


def _row(now: QueueStats, before: QueueStats | None, elapsed_s: float) -> QueueRow:
    if before is None:
        return QueueRow(now)
    return QueueRow(now, (now.sent - before.sent) / elapsed_s, (now.received - before.received) / elapsed_s)

"""Topics looked at again and again, as cheaply as it goes: what moved since the last look, for list, stat and top."""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from msgq import naming
from msgq.cli.common.names import Followed, Names
from msgq.impl.ring.snapshot import TopicWatch
from msgq.stats import TopicCounts, TopicStats

_STATS_PERIOD_S = 2.0  # who takes part, and whether they live, is asked of /proc: that is the dear part


@dataclass(frozen=True)
class Row:
    """A topic, and what it did since the last look.

    Attributes
    ----------
    stats : who takes part; up to 2 s old. Its messages and bytes are those of the look.
    rate : messages a second; None at the first look, and of stock publishers, which do not count.
    byte_rate : payload bytes a second; of stock publishers what went through the ring, so a little more.
    lost : messages that those who subscribe have lost by now, all together, see `SubscriberInfo`; None when unknown.
    lost_rate : messages a second that they lose.
    """

    stats: TopicStats
    rate: float | None
    byte_rate: float | None
    lost: int | None
    lost_rate: float | None

    @property
    def stock(self) -> bool:
        """Whether a stock program publishes it."""
        return self.stats.publisher_kind == "stock"

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        rates = {"rate": self.rate, "byte_rate": self.byte_rate, "lost_rate": self.lost_rate}
        return {**dataclasses.asdict(self.stats), "kind": "ring", "lost": self.lost, **rates}


class _Watched:
    """One topic."""

    def __init__(self, name: str, prefix: str) -> None:
        self._watch = TopicWatch(name, prefix)
        self._stats = self._watch.stats()
        self._stats_s = self._look_s = time.monotonic()
        self._before: TopicCounts | None = None

    def look(self) -> Row:
        now_s, now = time.monotonic(), self._watch.counts()
        if now_s - self._stats_s >= _STATS_PERIOD_S:
            self._stats, self._stats_s = self._watch.stats(), now_s
        before, seconds = self._before, now_s - self._look_s
        self._before, self._look_s = now, now_s
        stats = dataclasses.replace(self._stats, messages=now.messages, bytes=now.bytes)
        if before is None or not seconds:
            return Row(stats, None, None, now.lost, None)
        rate = _growth(before.messages, now.messages, seconds)
        byte_rate = _growth(before.bytes, now.bytes, seconds)
        if stats.publisher_kind == "stock":
            rate, byte_rate = None, _growth(before.position_bytes, now.position_bytes, seconds)
        return Row(stats, rate, byte_rate, now.lost, _growth(before.lost, now.lost, seconds))


def _growth(before: int | None, now: int | None, seconds: float) -> float | None:
    """How much more it is, a second. Less, because somebody left or a count began anew, is nothing."""
    return None if before is None or now is None else max(0, now - before) / seconds


class Board:
    """The topics that a verb is about, as they come and go."""

    def __init__(self, names: Names) -> None:
        prefix = naming.checked_prefix(names.prefix)
        self._topics: Followed[_Watched] = Followed(names, lambda name: _Watched(name, prefix))

    def look(self) -> list[Row]:
        """Return how things are, sorted by name; rates are those since the last look."""
        self._topics.refresh()
        return [topic.look() for _, topic in sorted(self._topics.by_name.items())]

    def measure(self, seconds: float) -> list[Row]:
        """Return how things are, with the rates of some seconds from now; 0 for no rates."""
        rows = self.look()
        if not seconds or not rows:
            return rows
        time.sleep(seconds)
        return self.look()


def subscriber_count(row: Row) -> int:
    """How many subscribe that are not known to be dead."""
    return sum(one.participant.alive is not False for one in row.stats.subscribers) + row.stats.stock_subscribers

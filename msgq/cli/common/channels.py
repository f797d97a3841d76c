"""Channels beside topics: `channel/NAME`, and what they did meanwhile."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgq import stats
from msgq.cli.common.looks import Looks
from msgq.naming import CHANNEL_MARK
from msgq.stats import ChannelStats


@dataclass(frozen=True)
class ChannelRow:
    """A channel, and what it did since the look before.

    Attributes
    ----------
    rate, byte_rate : messages and payload bytes a second, of publishers that are there; None without a look before.
    """

    stats: ChannelStats
    rate: float | None = None
    byte_rate: float | None = None

    @property
    def endpoint(self) -> str:
        """What it is called among topics."""
        return CHANNEL_MARK + self.stats.name

    @property
    def tolerance_s(self) -> float | None:
        """For how long a subscriber may pause without losing a message, at this rate; None: nobody can tell."""
        return self.stats.capacity / self.rate if self.rate and self.stats.capacity else None

    @property
    def bytes(self) -> int:
        """Payload of the publishers that are there."""
        return sum(one.bytes for one in self.stats.publishers)

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        plain = dataclasses.asdict(self.stats)
        said = {"endpoint": self.endpoint, "kind": "channel", "use": plain.pop("kind"), "bytes": self.bytes}
        return {**plain, **said, "rate": self.rate, "byte_rate": self.byte_rate, "tolerance_s": self.tolerance_s}


class Channels:
    """The channels that a verb is about.

    Parameters
    ----------
    texts : names and patterns, for topics among them; none: every channel.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None) -> None:
        self._looks = Looks(texts, prefix, CHANNEL_MARK, stats.channel_inodes, stats.channel)

    def measure(self, seconds: float) -> list[ChannelRow]:
        """Return how things are, `seconds` after this was made at the earliest; 0 for no rates."""
        return [_row(*look) for look in self._looks.twice(seconds)]


def _row(now: ChannelStats, before: ChannelStats | None, elapsed_s: float) -> ChannelRow:
    if before is None:
        return ChannelRow(now)
    byte_rate = max(0, ChannelRow(now).bytes - ChannelRow(before).bytes) / elapsed_s
    return ChannelRow(now, (now.messages - before.messages) / elapsed_s, byte_rate)

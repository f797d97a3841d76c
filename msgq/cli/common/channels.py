"""Channels beside topics: `channel/NAME`, which texts mean them, and what they did meanwhile."""

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgq import stats
from msgq.cli.common.names import choices
from msgq.errors import EndpointNameError, SegmentError
from msgq.naming import CHANNEL_MARK
from msgq.selection import Selection
from msgq.stats import ChannelStats, channel_inodes


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


def topic_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts that may mean topics."""
    return [text for text in texts if not text.startswith(CHANNEL_MARK)]


def channels(texts: Sequence[str], prefix: str | None) -> list[str]:
    """Return the channels that are there and meant, sorted; all when there are no texts."""
    wanted = Selection(choices(texts) or None)
    return [name for name in channel_inodes(prefix) if CHANNEL_MARK + name in wanted]


class Channels:
    """The channels that a verb is about.

    Parameters
    ----------
    texts : names and patterns, for topics among them; none: every channel.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None) -> None:
        self._texts, self._prefix = texts, prefix
        self._before, self._before_s = self._look(), time.monotonic()

    def _look(self) -> dict[str, ChannelStats]:
        found = {}
        for name in channels(self._texts, self._prefix):
            with contextlib.suppress(SegmentError, EndpointNameError):  # just removed, damaged, or not for us
                found[name] = stats.channel(name, self._prefix)
        return found

    def measure(self, seconds: float) -> list[ChannelRow]:
        """Return how things are, `seconds` after this was made at the earliest; 0 for no rates."""
        if not seconds or not self._before:
            return [ChannelRow(one) for one in self._before.values()]
        time.sleep(max(0.0, self._before_s + seconds - time.monotonic()))
        now, elapsed_s = self._look(), time.monotonic() - self._before_s
        return [self._row(one, elapsed_s) for one in now.values()]

    def _row(self, now: ChannelStats, elapsed_s: float) -> ChannelRow:
        before = self._before.get(now.name)
        if before is None or before.created_ns != now.created_ns:
            return ChannelRow(now)
        byte_rate = max(0, ChannelRow(now).bytes - ChannelRow(before).bytes) / elapsed_s
        return ChannelRow(now, (now.messages - before.messages) / elapsed_s, byte_rate)

"""How the verbs show figures and who: units for people, JSON for programs."""

import base64
import dataclasses
import json
import time
from typing import Any

import click
from rich.console import Console

from msgq.stats import Participant, TopicStats

# Wide enough for every table: what a pipe or a file receives is not folded at 80 columns.
_PLAIN_WIDTH = 160


class _Console(Console):
    """One whose reader may go away: the command ends then as it does with plain output."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """The standard output: as wide as the terminal, or unfolded where there is none."""
    terminal = _Console()
    return terminal if terminal.is_terminal else _Console(width=_PLAIN_WIDTH)


def echo_json(value: Any) -> None:
    """Print a dataclass or a plain value as one line of JSON; bytes as base64."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    click.echo(json.dumps(plain, default=_plain))


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def in_bytes(count: float | None) -> str:
    """A number of bytes with a decimal unit: "3.5 MB"."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def in_units(count: float | None) -> str:
    """A count with separators; "-" where it is not known."""
    return "-" if count is None else f"{count:,.0f}"


def in_us(duration: float | None) -> str:
    """A number of microseconds, with tenths where they matter: "12.3", "12,345"."""
    if duration is None:
        return "-"
    return f"{duration:,.1f}" if duration < 1000 else f"{duration:,.0f}"


def in_rate(rate: float | None) -> str:
    """Something a second, with fractions where they matter: "0.25", "99.9", "1,000,000"."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 1000 or rate == 0 else f"{rate:.4g}"


def age(created_ns: int | None) -> str:
    """How long ago something was made (CLOCK_REALTIME), in the largest unit that leaves at least 2 of it."""
    if not created_ns:
        return "-"
    seconds = max(0, time.time_ns() - created_ns) // 1_000_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def who(participant: Participant) -> str:
    """Name and pid, and what is known about its life."""
    fate = {True: "", False: " (dead)", None: " (unknown)"}[participant.alive]
    return f"{participant.name} {participant.pid}{fate}"


def publisher(topic: TopicStats) -> str:
    """Who publishes a topic; stock publishers leave no name."""
    if topic.publisher is not None:
        return who(topic.publisher)
    return "stock" if topic.publisher_kind == "stock" else "-"


def subscribers(topic: TopicStats) -> str:
    """Who subscribes to a topic, one a line; stock subscribers leave no name."""
    named = [who(subscriber.participant) for subscriber in topic.subscribers]
    stock = [f"{topic.stock_subscribers} stock"] if topic.stock_subscribers else []
    return "\n".join(named + stock) or "-"

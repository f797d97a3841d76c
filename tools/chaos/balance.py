"""Balances the books of a run, and prints them."""

from __future__ import annotations

from collections import Counter

from tools.chaos.kinds import worker
from tools.chaos.kinds.part import Figures, Outcome, Past
from tools.chaos.kinds.topics import Topic, complete, successions
from tools.chaos.roles import KINDS
from tools.chaos.run import ALL_KINDS, AUDITOR, PUBLISHER, Life, Run


def balance(run: Run) -> list[str]:
    """Return what is wrong in the books of a run that came to its end."""
    wrong = []
    for topic in run.topics:
        total = run.totals[topic.endpoint]
        wrong += _publishers(run, topic, total)
        for life in run.lives:
            row = run.books[life.number]
            if life.topic is topic and life.first is not None:
                wrong += complete(f"{life.kind} {life.number} of {topic.endpoint}", row.received, row.lost, total)
    return wrong + worker.balance(outcome(run))


def outcome(run: Run) -> Outcome:
    """Return the books of the lives of all kinds."""
    lives = [life for life in run.lives if life.kind in (ALL_KINDS, AUDITOR)]
    pasts = [Past(life.number, life.first is not None, life.end == "killed") for life in lives]
    return Outcome(run.books, run.folder, pasts)


def _publishers(run: Run, topic: Topic, total: int) -> list[str]:
    rows = [run.books[life.number] for life in run.lives if life.topic is topic and life.kind == PUBLISHER]
    return successions(topic.endpoint, rows, total)


def table(run: Run) -> str:
    """Return the figures of a run: a line for each kind, and one for each way in which topics are subscribed to."""
    heads = ("lives", "stayed", "killed", "made", "taken", "lost")
    lines = [
        f"{len(run.lives)} lives, {run.done['kills']} kills, {run.done['stops']} stops in {run.seconds:.0f} s",
        f"publishers of topics: {_ends(run, PUBLISHER)}",
        f"processes of all kinds: {_ends(run, ALL_KINDS)}",
        "",
        f"{'':<20}" + "".join(f"{head:>{8 if i < 3 else 12}}" for i, head in enumerate(heads)),
        *(_line(_lives(run, kind), _subscribers(run, kind)) for kind in KINDS),
        *(_line(_lives(run, ALL_KINDS), line) for line in worker.figures(outcome(run))),
    ]
    return "\n".join(lines)


def _ends(run: Run, kind: str) -> str:
    ends = Counter(life.end for life in _lives(run, kind))
    return f"{sum(ends.values())} ({', '.join(f'{count} {end}' for end, count in sorted(ends.items()))})"


def _lives(run: Run, kind: str) -> list[Life]:
    return [life for life in run.lives if life.kind == kind]


def _subscribers(run: Run, kind: str) -> Figures:
    rows = [run.books[life.number] for life in _lives(run, kind)]
    received, lost = sum(row.received for row in rows), sum(row.lost for row in rows)
    return Figures(f"topics, {kind}", sum(run.totals.values()), received, lost)


def _line(lives: list[Life], line: Figures) -> str:
    stayed, killed = sum(life.first is not None for life in lives), sum(life.end == "killed" for life in lives)
    counts = f"{line.made:>12,}{line.taken:>12,}{line.lost:>12,}"
    return f"{line.what:<20}{len(lives):>8,}{stayed:>8}{killed:>8,}{counts}  {line.more}".rstrip()

"""Balances the books of a run, and prints them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tools.chaos.roles import KINDS, Topic
from tools.chaos.run import Life, Run


def balance(run: Run) -> list[str]:
    """Return what is wrong in the books of a run that came to its end."""
    wrong = []
    for topic in run.topics:
        total = run.totals[topic.endpoint]
        wrong += _publishers(run, topic)
        for life in run.lives:
            row = run.books[life.number]
            if life.topic is topic and life.first is not None and row.received + row.lost != total:
                counts = f"{row.received} received, {row.lost} lost, of {total} that were published"
                wrong.append(f"{life.kind} {life.number} of {topic.endpoint}: {counts}")
    return wrong


def _publishers(run: Run, topic: Topic) -> list[str]:
    """Each publisher must begin with the count with which the one before it ended, as that one wrote it down itself."""
    rows = [run.books[life.number] for life in run.lives if life.topic is topic and life.kind not in KINDS]
    chain = sorted((row.base, row.sent, row.made) for row in rows if row.base is not None)
    wrong = [f"{topic.endpoint}: the first publisher found {chain[0][0]} messages"] if chain[0][0] else []
    for (base, sent, made), (successor, _, _) in pairwise(chain):
        if not sent <= successor - base <= made:
            text = f"a publisher that began at {base} made {made} messages and had sent {sent}; the next began at"
            wrong.append(f"{topic.endpoint}: {text} {successor}")
    return wrong


def table(run: Run) -> str:
    """Return the figures of a run."""
    ends = Counter(life.end for life in run.lives if life.kind not in KINDS)
    publishers = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    received = sum(run.books[life.number].received for life in run.lives)
    lines = [
        f"{len(run.lives)} lives, {run.done['kills']} kills, {run.done['stops']} stops in {run.seconds:.0f} s",
        f"publishers: {sum(ends.values())} ({publishers})",
        *(f"{topic.endpoint}: {run.totals.get(topic.endpoint, 0)} messages published" for topic in run.topics),
        f"{received} messages received, {received / max(run.seconds, 1e-9):.0f} a second",
        "",
        f"{'subscribers':<12}{'lives':>8}{'stayed':>8}{'killed':>8}{'received':>12}{'lost':>12}",
    ]
    for kind in KINDS:
        lives = [life for life in run.lives if life.kind == kind]
        lines.append(f"{kind:<12}{_columns(run, lives)}")
    return "\n".join(lines)


def _columns(run: Run, lives: list[Life]) -> str:
    rows = [run.books[life.number] for life in lives]
    stayed = sum(life.first is not None for life in lives)
    killed = sum(life.end == "killed" for life in lives)
    counts = f"{sum(row.received for row in rows):>12}{sum(row.lost for row in rows):>12}"
    return f"{len(lives):>8}{stayed:>8}{killed:>8}{counts}"

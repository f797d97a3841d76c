"""Balances the history of a run, and prints them."""

from __future__ import annotations

from collections import Counter

from tools.chaos.kinds import worker
from tools.chaos.kinds.topics import Topic, check_complete, check_successions
from tools.chaos.kinds.workload import Counts, RunResult, WorkerResult
from tools.chaos.roles import KINDS
from tools.chaos.run import ALL_KINDS, FINAL_CHECKER, PUBLISHER, Incarnation, Run


def check(run: Run) -> list[str]:
    """Return the errors in the history of a finished run."""
    errors = []
    for topic in run.topics:
        total = run.totals[topic.endpoint]
        errors += _publishers(run, topic, total)
        for incarnation in run.incarnations:
            record = run.history[incarnation.number]
            if incarnation.topic is topic and incarnation.first is not None:
                errors += check_complete(
                    f"{incarnation.kind} {incarnation.number} of {topic.endpoint}", record.received, record.lost, total
                )
    return errors + worker.check(run_result(run))


def run_result(run: Run) -> RunResult:
    """Return the history of the incarnations of all kinds."""
    incarnations = [incarnation for incarnation in run.incarnations if incarnation.kind in (ALL_KINDS, FINAL_CHECKER)]
    results = [
        WorkerResult(incarnation.number, incarnation.first is not None, incarnation.end == "killed")
        for incarnation in incarnations
    ]
    return RunResult(run.history, run.folder, results)


def _publishers(run: Run, topic: Topic, total: int) -> list[str]:
    records = [
        run.history[incarnation.number]
        for incarnation in run.incarnations
        if incarnation.topic is topic and incarnation.kind == PUBLISHER
    ]
    return check_successions(topic.endpoint, records, total)


def table(run: Run) -> str:
    """Return the figures of a run: a line for each kind, and one for each way in which topics are subscribed to."""
    heads = ("processes", "stayed", "killed", "made", "taken", "lost")
    lines = [
        f"{len(run.incarnations)} processes, {run.done['kills']} kills, {run.done['stops']} stops, {run.seconds:.0f} s",
        f"publishers of topics: {_ends(run, PUBLISHER)}",
        f"processes of all kinds: {_ends(run, ALL_KINDS)}",
        "",
        f"{'':<20}" + "".join(f"{head:>{10 if i < 3 else 12}}" for i, head in enumerate(heads)),
        *(_line(_incarnations(run, kind), _subscribers(run, kind)) for kind in KINDS),
        *(_line(_incarnations(run, ALL_KINDS), line) for line in worker.counts(run_result(run))),
    ]
    return "\n".join(lines)


def _ends(run: Run, kind: str) -> str:
    ends = Counter(incarnation.end for incarnation in _incarnations(run, kind))
    return f"{sum(ends.values())} ({', '.join(f'{count} {end}' for end, count in sorted(ends.items()))})"


def _incarnations(run: Run, kind: str) -> list[Incarnation]:
    return [incarnation for incarnation in run.incarnations if incarnation.kind == kind]


def _subscribers(run: Run, kind: str) -> Counts:
    records = [run.history[incarnation.number] for incarnation in _incarnations(run, kind)]
    received, lost = sum(record.received for record in records), sum(record.lost for record in records)
    return Counts(f"topics, {kind}", sum(run.totals.values()), received, lost)


def _line(incarnations: list[Incarnation], line: Counts) -> str:
    stayed, killed = (
        sum(incarnation.first is not None for incarnation in incarnations),
        sum(incarnation.end == "killed" for incarnation in incarnations),
    )
    counts = f"{line.made:>12,}{line.taken:>12,}{line.lost:>12,}"
    return f"{line.name:<20}{len(incarnations):>10,}{stayed:>10}{killed:>10,}{counts}  {line.details}".rstrip()

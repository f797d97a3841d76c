"""Balances the history of a run, and prints it."""

from __future__ import annotations

from collections import Counter

from tools.chaos.kinds import worker
from tools.chaos.kinds.workload import Counts
from tools.chaos.plan import Crew
from tools.chaos.run import Run


def check(run: Run) -> list[str]:
    """Return the errors in the history of a finished run."""
    return worker.check([run.results(lane) for lane in run.plan.lanes])


def table(run: Run) -> str:
    """Return the figures of a run: a line for each crew, and one for each count of an endpoint."""
    lines = [
        f"{len(run.incarnations)} processes, {run.done['kills']} kills, {run.done['stops']} stops, {run.seconds:.0f} s"
    ]
    lines += [_line_of_crew(run, crew) for crew in run.plan.crews]
    lines += ["", f"{'':<20}" + "".join(f"{head:>12}" for head in ("begun", "taken", "lost"))]
    return "\n".join(lines + [_line(count) for lane in run.plan.lanes for count in lane.kind.counts(run.results(lane))])


def _line_of_crew(run: Run, crew: Crew) -> str:
    ends = Counter(incarnation.end for incarnation in run.incarnations if incarnation.crew is crew)
    lanes = ", ".join(lane.name for lane in crew.lanes)
    counts = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    return f"{crew.name} of {lanes}{', permanent' * crew.is_permanent}: {sum(ends.values())} ({counts})"


def _line(line: Counts) -> str:
    return f"{line.name:<20}{line.begun:>12,}{line.taken:>12,}{line.lost:>12,}  {line.details}".rstrip()

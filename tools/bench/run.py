"""A whole run: all rows of all systems, repeated. The systems take turns."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tools.bench import machine, numbers
from tools.bench.adapters import FLOOR, KINDS, ON_REQUEST, OTHER, OURS, adapter
from tools.bench.adapters.base import Unsupported
from tools.bench.cases import Case
from tools.bench.entry import Entry
from tools.bench.floor import build
from tools.bench.machine import IdleGate, cores
from tools.bench.process import Absent, Failed, import_systems
from tools.bench.result import Result
from tools.bench.tables import TABLES, find_table
from tools.bench.workspace import Workspace

WAIT_BUDGET_S = 60.0
QUICK_WAIT_BUDGET_S = 0.5
RETRIES = 3
# A slice is disturbed when a process waited for its core for a larger share of it: less than one turn of the scheduler.
DISTURBED = 0.02
LIMIT_ROUNDS = 200
LINE_ROUNDS = 3
QUICK_LIMIT_ROUNDS = 20


def run(space: Workspace, result: Result, *, say: Callable[[str], None], keep: Callable[[], None]) -> None:
    """Measure the rows that the result does not have yet.

    Args:
        say: prints a line of progress.
        keep: stores the result, after each row of each repeat.
    """
    cases = [case.scale(result.scale) for case in result.cases]
    cases = [case.quick() if result.quick else case for case in cases]
    import_systems()
    _find_systems(result, space)
    for name, reason in result.absent.items():
        say(f"{name} is absent: {reason}")
    gate = IdleGate(QUICK_WAIT_BUDGET_S if result.quick else WAIT_BUDGET_S)
    measured = {(sample["case"], sample["repeat"]) for sample in result.samples}
    planned = [
        (case, repeat) for repeat in range(result.repeats) for case in cases if repeat < (case.repeats or math.inf)
    ]
    left = [(case, repeat) for case, repeat in planned if (case.key, repeat) not in measured]
    clock = _Clock(len(left))
    for case, repeat in left:
        if FLOOR in result.versions and len(result.limits) <= repeat:
            gate.wait()
            rounds = QUICK_LIMIT_ROUNDS if result.quick else LIMIT_ROUNDS
            with suppress(build.FloorError):
                result.limits.append(build.run_program(space.folder, "limits", rounds, *cores()))
        say(f"repeat {repeat + 1} of {result.repeats}, {clock.left_text()}: {case.key}")
        _Contest(result, space, case, repeat).hold(gate)
        clock.count()
        keep()
    if gate.left_s <= 0:
        say("the machine was busy: the time for waiting was used up")


class _Clock:
    """How long the rest of the run takes, by the mean time of the rows that were measured."""

    def __init__(self, rows: int) -> None:
        self._rows, self._done, self._start = rows, 0, time.monotonic()

    def count(self) -> None:
        self._done += 1

    def left_text(self) -> str:
        if not self._done:
            return f"{self._rows} to measure"
        left_s = (time.monotonic() - self._start) / self._done * (self._rows - self._done)
        return f"{left_s / 60:.1f} minutes left"


def _find_systems(result: Result, space: Workspace) -> None:
    """Build the floor, and find the versions of the systems that take part in the rows."""
    result.absent.clear()
    try:
        build.build(space.folder)
        compiler = build.compiler()
    except build.FloorError as error:
        result.absent[FLOOR], compiler = str(error), []
    if not result.machine:
        result.machine = machine.facts(compiler)
    for system, name in _adapters(result).items():
        if system in result.absent:
            continue
        adapter(name).raise_limits()
        try:
            with Entry(space, Case("probe", "", "", "probe"), name, _checkout(result, system)) as entry:
                entry.prepare()
                result.versions[system] = entry.measure()["version"]
        except (Absent, Failed) as error:
            result.absent[system] = str(error)


def _adapters(result: Result) -> dict[str, str]:
    """Return an adapter of each system that is to be measured."""
    found: dict[str, str] = {}
    for table in result.tables:
        for system, name in TABLES[table].adapters.items():
            if system in (OURS, FLOOR, *KINDS, *result.peers) or not (result.peers or system in (OTHER, *ON_REQUEST)):
                found.setdefault(system, name)
    return found


def _checkout(result: Result, system: str) -> Path | None:
    """Return the checkout of a system; None: this one."""
    return Path(result.against) if system == OTHER else None


class _Contest:
    """One case in one repeat: fresh processes of all systems, which measure short slices in turns.

    All of them wait for their turn asleep. What the machine does from one second to the next hits every system alike,
    and the ratios within one round of turns do not see it.
    """

    def __init__(self, result: Result, space: Workspace, case: Case, repeat: int) -> None:
        self.result, self.space, self.case, self.repeat = result, space, case, repeat
        self.adapters = TABLES[find_table(case.key)].adapters
        self.entries: dict[str, Entry] = {}
        self.results: dict[str, list[dict[str, Any]]] = {}

    def hold(self, gate: IdleGate) -> None:
        """Start, take turns, end, and record what came of it."""
        with ExitStack() as stack:
            for system in self.adapters:
                if system in self.result.versions and (self.case.key, system) not in self.result.unsupported:
                    self._start(stack, system)
            for step in ("prepare", "await_ready"):
                for system in list(self.entries):
                    with self._dropping(system):
                        getattr(self.entries[system], step)()
            for turn in range(self.case.slices):
                gate.wait()
                self._round(turn, gate)
        self.result.samples += [self._sample(system, results) for system, results in self.results.items()]

    def _start(self, stack: ExitStack, system: str) -> None:
        with self._dropping(system):
            entry = Entry(self.space, self.case, self.adapters[system], _checkout(self.result, system))
            self.entries[system] = stack.enter_context(entry)

    def _round(self, turn: int, gate: IdleGate) -> None:
        self._look_at_cores()
        systems = list(self.entries)
        first = (turn + self.repeat) % max(1, len(systems))
        for system in systems[first:] + systems[:first]:
            with self._dropping(system):
                measured = self._quietest(self.entries[system], gate)
                self.results.setdefault(system, []).append(measured)

    def _look_at_cores(self) -> None:
        """How far apart they are changes from minute to minute on a virtual machine, up to tenfold."""
        if FLOOR in self.result.versions and len(set(cores())) == 2:
            with suppress(build.FloorError):
                line = build.run_program(self.space.folder, "limits", LINE_ROUNDS, *cores(), "line")
                self.result.apart.setdefault(self.case.key, []).append(line["cache_line_ns"])

    @staticmethod
    def _quietest(entry: Entry, gate: IdleGate) -> dict[str, Any]:
        """Measure a slice, and again if it was disturbed, as long as there is time for waiting; the quietest counts."""
        best = entry.measure()
        for _ in range(RETRIES):
            if best["waited"] <= DISTURBED or gate.left_s <= 0:
                break
            with gate.charging():
                best = min(best, entry.measure(), key=lambda result: float(result["waited"]))
        return best

    @contextmanager
    def _dropping(self, system: str) -> Iterator[None]:
        """Take the system out of the contest when it cannot go on."""
        try:
            yield
        except Unsupported as reason:
            self.result.unsupported[self.case.key, system] = str(reason)
        except (Failed, Absent) as reason:
            self.result.failed[self.case.key, system] = str(reason)
        else:
            return
        self.entries.pop(system, None)
        self.results.pop(system, None)

    def _sample(self, system: str, results: list[dict[str, Any]]) -> dict[str, Any]:
        sample = {
            "case": self.case.key,
            "system": system,
            "repeat": self.repeat,
            "slices": [numbers.round_figure(each["value"]) for each in results],
            "waited": [round(each["waited"], 4) for each in results],
            "cores": [round(each["cores"], 3) for each in results],
        }
        if lost := sum(each.get("lost") or 0 for each in results):
            sample["lost"] = lost
        latencies = [latency for each in results for latency in each.get("samples", ())]
        if latencies:
            sample |= {"latencies": numbers.list_latencies(latencies), "count": len(latencies)}
        costs = [each["costs"] for each in results if "costs" in each]
        if costs:
            sample["costs"] = {name: numbers.median([each[name] for each in costs]) for name in costs[0]}
        return sample

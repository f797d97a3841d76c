"""A whole run: every case of every system, again and again, the systems taking turns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tools.bench import numbers
from tools.bench.adapters import FLOOR, adapter
from tools.bench.adapters.base import Unsupported
from tools.bench.cases import Case
from tools.bench.entry import Entry, ProgramEntry, run_program
from tools.bench.floor import build
from tools.bench.machine import IdleGate, cores
from tools.bench.process import Absent, Failed
from tools.bench.suites import Suite
from tools.bench.workspace import Workspace

WAIT_BUDGET_S = 180.0
QUICK_WAIT_BUDGET_S = 0.5
RETRIES = 3
# A slice is disturbed when a process waited for its core for a larger share of it: less than one turn of the scheduler.
DISTURBED = 0.02
LIMIT_ROUNDS = 200
LINE_ROUNDS = 3
QUICK_LIMIT_ROUNDS = 20

Say = Callable[[str], None]


@dataclass
class Record:
    """All that a run has found.

    Attributes
    ----------
    versions : of the systems that are there. absent : why the others are not.
    suite : what was measured, `cases` of it.
    samples : a dictionary for each case, system and repeat: ``slices`` has the figures, ``value`` their median,
        ``waited`` the share (0 to 1) of each slice that a process had to wait for its core, and ``cores`` the CPU time
        of all its processes in a second of it.
    unsupported, failed : (case, system) and the reason.
    limits : a dictionary for each repeat.
    apart : of each case, how long a cache line took from one core to the other, ns, before each round of turns.
    """

    suite: Suite
    cases: list[Case]
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    unsupported: dict[tuple[str, str], str] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    limits: list[dict[str, float]] = field(default_factory=list)
    apart: dict[str, list[float]] = field(default_factory=dict)


def run(
    space: Workspace,
    suite: Suite,
    cases: Sequence[Case],
    peers: Sequence[str],
    *,
    repeats: int,
    quick: bool,
    say: Say,
) -> Record:
    """Measure cases of the suite for ours, the floor and the installed peers; `say` gets lines of progress."""
    record = Record(suite, [case.quick() if quick else case for case in cases])
    _find_systems(record, space, peers)
    for name, reason in record.absent.items():
        say(f"{name} is absent: {reason}")
    gate = IdleGate(QUICK_WAIT_BUDGET_S if quick else WAIT_BUDGET_S)
    for repeat in range(repeats):
        if FLOOR in record.versions:
            gate.wait()
            rounds = QUICK_LIMIT_ROUNDS if quick else LIMIT_ROUNDS
            record.limits.append(run_program(space, "limits", rounds, *cores()))
        for case in record.cases:
            say(f"repeat {repeat + 1} of {repeats}: {case.title}")
            _Contest(record, space, case, repeat).hold(gate)
    if gate.left_s <= 0:
        say("the machine was busy: the time for waiting was used up")
    return record


def _find_systems(record: Record, space: Workspace, peers: Sequence[str]) -> None:
    try:
        build.build(space.folder)
    except build.FloorError as error:
        record.absent[FLOOR] = str(error)
    for name in (record.suite.own_system, FLOOR, *peers):
        if name in record.absent:
            continue
        if record.suite.raised:
            adapter(name).raise_limits()
        try:
            with Entry(space, Case("probe", "", "", "probe"), name) as entry:
                entry.prepare()
                record.versions[name] = entry.measure()["version"]
        except (Absent, Failed) as error:
            record.absent[name] = str(error)


class _Contest:
    """One case in one repeat: fresh processes of all systems, which measure short slices in turns.

    All of them wait for their turn asleep. What the machine does from one second to the next hits every system alike,
    and the ratios within one round of turns do not see it.
    """

    def __init__(self, record: Record, space: Workspace, case: Case, repeat: int) -> None:
        self.record, self.space, self.case, self.repeat = record, space, case, repeat
        self.entries: dict[str, Entry | ProgramEntry] = {}
        self.results: dict[str, list[dict[str, Any]]] = {}

    def hold(self, gate: IdleGate) -> None:
        """Start, take turns, end, and record what came of it."""
        with ExitStack() as stack:
            for system in self.record.versions:
                if (self.case.key, system) not in self.record.unsupported:
                    self._start(stack, system)
            for step in ("prepare", "await_ready"):
                for system in list(self.entries):
                    with self._dropping(system):
                        getattr(self.entries[system], step)()
            for turn in range(self.case.slices):
                gate.wait()
                self._round(turn, gate)
        self.record.samples += [self._sample(system, results) for system, results in self.results.items()]

    def _start(self, stack: ExitStack, system: str) -> None:
        with self._dropping(system):
            if self.case.program and system == FLOOR:
                self.entries[system] = stack.enter_context(ProgramEntry(self.space, self.case))
            else:
                self.entries[system] = stack.enter_context(Entry(self.space, self.case, system))

    def _round(self, turn: int, gate: IdleGate) -> None:
        self._look_at_cores()
        systems = list(self.entries)
        first = (turn + self.repeat) % max(1, len(systems))
        for system in systems[first:] + systems[:first]:
            with self._dropping(system):
                result = self._quietest(self.entries[system], gate)
                self.results.setdefault(system, []).append(result)

    def _look_at_cores(self) -> None:
        """How far apart they are changes from minute to minute on a virtual machine, up to tenfold."""
        if FLOOR in self.record.versions and len(set(cores())) == 2:
            line = run_program(self.space, "limits", LINE_ROUNDS, *cores(), "line")["cache_line_ns"]
            self.record.apart.setdefault(self.case.key, []).append(line)

    @staticmethod
    def _quietest(entry: Entry | ProgramEntry, gate: IdleGate) -> dict[str, Any]:
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
            self.record.unsupported[self.case.key, system] = str(reason)
        except Failed as reason:
            self.record.failed[self.case.key, system] = str(reason)
        else:
            return
        self.entries.pop(system, None)
        self.results.pop(system, None)

    def _sample(self, system: str, results: list[dict[str, Any]]) -> dict[str, Any]:
        slices = [result["value"] for result in results]
        sample = {"case": self.case.key, "system": system, "repeat": self.repeat}
        sample |= {
            "value": numbers.median(slices),
            "slices": slices,
            "waited": [result["waited"] for result in results],
        }
        sample["cores"] = [
            result["cores"] for result in results if "cores" in result
        ]  # a program of the floor does not say
        latencies = [result for result in results for result in result.get("samples", ())]
        return sample | numbers.spread(latencies) | {"count": len(latencies)} if latencies else sample

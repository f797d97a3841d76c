"""Measures which lines the tests reach, and runs the tests on mutants, in copies of the tree."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import DEADLINE
from tools.mutate.copies import Copy, NotRunError, copies_of, on_copies
from tools.mutate.operators import Mutant, mutants

KILLED, SURVIVED, NOT_REACHED = "killed", "survived", "not reached"
TIMED_OUT, NO_TIME, NOT_RUN = "timed out", "no time", "not run"
_FAST = "not ci and not nightly and not style"  # the tests of `make test`
_CI = "ci and not nightly"
_SLACK_SECONDS = DEADLINE + 30.0  # seconds besides five times the usual time: a condition may take DEADLINE to fail


class Reach:
    """Which tests execute which lines of the files, and how long each test takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # seconds of tests that passed
        self.failed = 0
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    def add(self, noted: dict[str, Any], root: Path) -> None:
        """Add what one process of pytest noted."""
        self.seconds |= {test: seconds for test, (passed, seconds) in noted["tests"].items() if passed}
        self.failed += sum(not passed for passed, _ in noted["tests"].values())
        for path, lines in noted["reached"].items():
            for line, tests in lines.items():
                self._lines[str(Path(path).relative_to(root))][int(line)].update(tests)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, those of the fastest files first."""
        lines = self._lines[mutant.path]
        tests_of_lines = set[str]().union(*(lines[line] for line in mutant.lines or [*lines])) & self.seconds.keys()
        totals: dict[str, float] = defaultdict(float)
        for test in tests_of_lines:
            totals[_file(test)] += self.seconds[test]
        return sorted(tests_of_lines, key=lambda test: (totals[_file(test)], test))


def mutate(
    root: Path, globs: Sequence[str], tests: Sequence[str], most: int | None, seed: int, seconds: float
) -> dict[Mutant, str]:
    """Return the verdict on each mutant of the modules that match.

    Raises:
        NotRunError: the modules have no mutants, or the tests do not run without a mutant.
    """
    until_s = time.monotonic() + seconds
    files = sorted({str(path.relative_to(root)) for glob in globs for path in root.glob(glob)})
    candidates = [mutant for path in files for mutant in mutants(path, (root / path).read_bytes())]
    if not candidates:
        raise NotRunError(f"no mutants in {', '.join(globs)}")
    candidates = random.Random(seed).sample(candidates, min(len(candidates), most or len(candidates)))
    jobs = os.cpu_count() or 1
    with copies_of(root, jobs) as copies:
        reach = Reach()
        for tier in (_FAST, _CI):  # the slow tests only for files with lines that no fast test reaches
            if missed := {mutant.path for mutant in candidates if not reach.tests(mutant)}:
                measure(reach, copies[0], missed, [*tests, "-m", tier, "-n", str(jobs)], until_s)
        if not reach.seconds:
            raise NotRunError("without a mutant, no test passed")
        chosen = {mutant: names for mutant in candidates if (names := reach.tests(mutant))}
        done = on_copies(copies, lambda copy, mutant: judge(copy, mutant, chosen[mutant], reach, until_s), chosen)
        return dict.fromkeys(candidates, NOT_REACHED) | done


def report(verdicts: dict[Mutant, str]) -> str:
    """Return the counts, and the mutants that were not killed."""
    counts = Counter(verdicts.values())
    names = (KILLED, SURVIVED, NOT_REACHED, TIMED_OUT, NO_TIME, NOT_RUN)
    lines = [f"{len(verdicts)} mutants: " + ", ".join(f"{counts[name]} {name}" for name in names)]
    for name in (NOT_REACHED, TIMED_OUT, SURVIVED, NOT_RUN):
        matching = [mutant for mutant, verdict in verdicts.items() if verdict == name]
        lines += [f"{name}: {mutant}" for mutant in sorted(matching, key=lambda mutant: (mutant.path, mutant.begin))]
    return "\n".join(lines)


def is_complete(verdicts: dict[Mutant, str]) -> bool:
    """Return whether the tests ran on all mutants for which there was time, and on at least one."""
    counts = Counter(verdicts.values())
    return not counts[NOT_RUN] and counts[NO_TIME] + counts[NOT_REACHED] < len(verdicts)


def measure(reach: Reach, copy: Copy, files: set[str], arguments: Sequence[str], until_s: float) -> None:
    """Run tests without a mutant, and add what they reach."""
    order = {"measure": [str(copy.tree / path) for path in files], "output": str(copy.notes)}
    code, output = copy.pytest(order, ["--dist", "loadgroup", *arguments], until_s - time.monotonic())
    if code is None:
        raise NotRunError("--seconds were over before all tests had run once without a mutant")
    failed = reach.failed
    for path in copy.notes.glob("*.json"):
        reach.add(json.loads(path.read_text()), copy.tree)
        path.unlink()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise NotRunError(f"without a mutant, pytest ended with {code}:\n{output[-3000:]}")
    if reach.failed > failed:
        print(f"tests that fail or are skipped without a mutant, and are not used: {reach.failed - failed}", flush=True)


def judge(copy: Copy, mutant: Mutant, tests: list[str], reach: Reach, until_s: float) -> str:
    """Return the verdict of tests on a mutant."""
    with copy.changed(mutant.path, mutant.apply((copy.tree / mutant.path).read_bytes())):
        verdict, output = _run(copy, tests, reach, until_s)
    if verdict == NOT_RUN:  # a crash or a failed import, by the mutant if the tests pass without it
        without, _ = _run(copy, tests, reach, until_s)
        verdict = KILLED if without == SURVIVED else without
        if verdict != KILLED:
            print(output[-3000:], file=sys.stderr, flush=True)
    return verdict


def _run(copy: Copy, tests: list[str], reach: Reach, until_s: float) -> tuple[str, str]:
    """Return a verdict, and what pytest printed."""
    limit_s, left_s = _SLACK_SECONDS + 5 * sum(map(reach.seconds.__getitem__, tests)), until_s - time.monotonic()
    if left_s <= 0:
        return NO_TIME, ""
    results = copy.run(tests, min(limit_s, left_s), "-x")
    if results.failed:
        return KILLED, results.output
    if results.code is None:
        return TIMED_OUT if limit_s < left_s else NO_TIME, results.output
    return SURVIVED if results.is_success(tests) else NOT_RUN, results.output


def _file(test: str) -> str:
    return test.partition("::")[0]

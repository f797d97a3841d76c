"""Measures which lines the tests reach, and runs the tests on mutants, in copies of the tree."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.leftovers import FOLDER, files_named, processes_in
from tests.support import DEADLINE, ROOT
from tools.mutate.operators import Mutant, mutants

KILLED, SURVIVED, NOT_REACHED = "killed", "survived", "not reached"
TIMED_OUT, NO_TIME, NOT_RUN = "timed out", "no time", "not run"
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "tools.mutate.plugin", "-p", "no:cacheprovider")
_TIER = "not ci and not nightly"  # the tests of `make test`
_SLACK_SECONDS = DEADLINE + 30.0  # in addition to five times the usual time: a condition may take DEADLINE to fail
_ENDING_SECONDS = 15.0  # for the cleanup of pytest after SIGINT
_LEFT_BEHIND = "left behind by the run:"  # from tests/conftest.py


class NotRunError(Exception):
    """The tests do not run without a mutant, or there is no mutant."""


class Reach:
    """Which tests execute which lines of the files, and how long each test takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # of tests that passed
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
        found = set[str]().union(*(lines[line] for line in mutant.lines or [*lines])) & self.seconds.keys()
        totals: dict[str, float] = defaultdict(float)
        for test in found:
            totals[_file(test)] += self.seconds[test]
        return sorted(found, key=lambda test: (totals[_file(test)], test))


def mutate(
    root: Path, globs: Sequence[str], tests: Sequence[str], most: int | None, seed: int, seconds: float
) -> dict[Mutant, str]:
    """Return the verdict on each mutant of the modules that match.

    Raises
    ------
    NotRunError : the modules have no mutants, or the tests do not run without a mutant.
    """
    until_s = time.monotonic() + seconds
    files = sorted({str(path.relative_to(root)) for glob in globs for path in root.glob(glob)})
    found = [mutant for path in files for mutant in mutants(path, (root / path).read_bytes())]
    if not found:
        raise NotRunError(f"no mutants in {', '.join(globs)}")
    found = random.Random(seed).sample(found, min(len(found), most or len(found)))
    jobs = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(root, Path(folder, str(number))) for number in range(jobs)]
        reach = copies[0].measure({mutant.path for mutant in found}, tests, jobs, until_s)
        chosen = {mutant: names for mutant in found if (names := reach.tests(mutant))}
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> str:
            copy = free.get()
            try:
                return copy.judge(mutant, chosen[mutant], reach, until_s)
            finally:
                free.put(copy)

        return dict.fromkeys(found, NOT_REACHED) | dict(zip(chosen, pool.map(judge, chosen), strict=True))


def report(verdicts: dict[Mutant, str]) -> str:
    """Return the counts, and the mutants that were not killed."""
    counts = Counter(verdicts.values())
    names = (KILLED, SURVIVED, NOT_REACHED, TIMED_OUT, NO_TIME, NOT_RUN)
    lines = [f"{len(verdicts)} mutants: " + ", ".join(f"{counts[name]} {name}" for name in names)]
    for name in (NOT_REACHED, TIMED_OUT, SURVIVED, NOT_RUN):
        found = [mutant for mutant, verdict in verdicts.items() if verdict == name]
        lines += [f"{name}: {mutant}" for mutant in sorted(found, key=lambda mutant: (mutant.path, mutant.begin))]
    return "\n".join(lines)


def is_complete(verdicts: dict[Mutant, str]) -> bool:
    """Return whether the tests ran on all mutants for which there was time, and on at least one."""
    counts = Counter(verdicts.values())
    return not counts[NOT_RUN] and counts[NO_TIME] + counts[NOT_REACHED] < len(verdicts)


class Copy:
    """A copy of the tree, in which pytest runs once at a time."""

    _times = itertools.count(1)  # seconds: each version of a file has its own time, so Python uses no old .pyc

    def __init__(self, root: Path, folder: Path) -> None:
        self._tree, self._notes = folder / "tree", folder / "notes"
        shutil.copytree(root, self._tree, ignore=_NOT_COPIED, symlinks=True)
        self._notes.mkdir()

    def measure(self, files: set[str], tests: Sequence[str], jobs: int, until_s: float) -> Reach:
        """Run the tests without a mutant."""
        order = {"measure": [str(self._tree / path) for path in files], "output": str(self._notes)}
        arguments = ["-n", str(jobs), "--dist", "loadgroup", "-m", _TIER, *tests]
        code, output = self._pytest(order, arguments, until_s - time.monotonic())
        if code is None:
            raise NotRunError("--seconds were over before all tests had run once without a mutant")
        reach = Reach()
        for path in self._notes.glob("*.json"):
            reach.add(json.loads(path.read_text()), self._tree)
        if code not in (0, 1) or not reach.seconds:
            raise NotRunError(f"without a mutant, pytest ended with {code}:\n{output[-3000:]}")
        if reach.failed:
            print(f"tests that fail or are skipped without a mutant, and are not used: {reach.failed}", flush=True)
        return reach

    def judge(self, mutant: Mutant, tests: list[str], reach: Reach, until_s: float) -> str:
        """Return the verdict of tests on a mutant."""
        path = self._tree / mutant.path
        source = path.read_bytes()
        self._write(path, mutant.apply(source))
        try:
            verdict, output = self._run(tests, reach, until_s)
        finally:
            self._write(path, source)
        if verdict == NOT_RUN:  # a crash or a failed import, by the mutant if the tests pass without it
            without, _ = self._run(tests, reach, until_s)
            verdict = KILLED if without == SURVIVED else without
            if verdict != KILLED:
                print(output[-3000:], file=sys.stderr, flush=True)
        return verdict

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        time_s = next(self._times)
        os.utime(path, (time_s, time_s))

    def _run(self, tests: list[str], reach: Reach, until_s: float) -> tuple[str, str]:
        """Return a verdict, and what pytest printed."""
        limit_s, left_s = _SLACK_SECONDS + 5 * sum(map(reach.seconds.__getitem__, tests)), until_s - time.monotonic()
        if left_s <= 0:
            return NO_TIME, ""
        notes = self._notes / "results"
        notes.write_text("")
        arguments = ["-n", "0", "-x", *dict.fromkeys(map(_file, tests))]
        code, output = self._pytest({"run": tests, "output": str(notes)}, arguments, min(limit_s, left_s))
        noted = [json.loads(line) for line in notes.read_text().splitlines()]
        _clean(next((note["folder"] for note in noted if "folder" in note), ""))
        passed = {note["passed"] for note in noted if "passed" in note}
        if any("failed" in note for note in noted):
            return KILLED, output
        if code is None:
            return TIMED_OUT if limit_s < left_s else NO_TIME, output
        return SURVIVED if code in (0, 1) and passed == set(tests) and _LEFT_BEHIND not in output else NOT_RUN, output

    def _pytest(self, order: dict[str, Any], arguments: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Return the exit code, and what pytest printed. None: it did not end within these seconds."""
        path = self._notes / "order"
        path.write_text(json.dumps(order))
        env = os.environ | {"PYTHONPATH": f"{self._tree}{os.pathsep}{ROOT}", "MUTATE_ORDER": str(path)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # the next run in the copy starts faster
        with tempfile.TemporaryFile("w+") as output:
            command = [*_PYTEST, *arguments]
            process = subprocess.Popen(
                command,
                cwd=self._tree,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            code: int | None = None
            try:
                code = process.wait(max(seconds, 0))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read()


def _clean(folder: str) -> None:
    """Remove the files and processes that a run of msgq's tests left because a mutant ended its process."""
    _, is_ours, word = folder.rpartition(FOLDER)
    if not is_ours or folder == os.environ.get("TMPDIR"):
        return
    for process in processes_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    for path in files_named(f"t{word}[0-9a-f]{{8}}"):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _file(test: str) -> str:
    return test.partition("::")[0]

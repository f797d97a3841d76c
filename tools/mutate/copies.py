"""Copies of the working tree, in which pytest runs on changed files. The tool never writes to the tree itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from tests.leftovers import FOLDER, files_named, processes_in, remove
from tests.support import ROOT

_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "tools.mutate.plugin", "-p", "no:cacheprovider")
_BUILD = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
_ENDING_SECONDS = 15.0  # seconds for the cleanup of pytest after SIGINT
_LEFT_BEHIND = "left behind by the run:"  # mark in the output of tests/conftest.py


class NotRunError(Exception):
    """The tests do not run without a mutant, or there is no mutant."""


@dataclass(frozen=True)
class Results:
    """The results of chosen tests. `code` is None if they did not end in time."""

    code: int | None
    passed: set[str]
    failed: set[str]
    output: str

    def is_success(self, tests: Sequence[str]) -> bool:
        """Return whether these tests passed and left nothing behind."""
        return self.code in (0, 1) and self.passed == set(tests) and _LEFT_BEHIND not in self.output


class Copy:
    """A copy of the tree, in which pytest runs once at a time."""

    _times = itertools.count(1)  # seconds: each version of a file has its own time, so Python uses no old .pyc

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.tree, self.notes = root, folder / "tree", folder / "notes"
        shutil.copytree(root, self.tree, ignore=_NOT_COPIED, symlinks=True)
        self.notes.mkdir()

    @contextlib.contextmanager
    def changed(self, path: str, source: bytes) -> Iterator[None]:
        """Have other bytes in a file of the copy."""
        file = self.tree / path
        before = file.read_bytes()
        self._write(file, source)
        try:
            yield
        finally:
            self._write(file, before)

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        time_s = next(self._times)
        os.utime(path, (time_s, time_s))

    @contextlib.contextmanager
    def rebuilt(self, header: str) -> Iterator[None]:
        """Have the extension modules that include a changed header compiled with it."""
        (self.tree / header).touch()
        try:
            subprocess.run(_BUILD, cwd=self.tree, check=True, capture_output=True)
            yield
        finally:
            for module in self.tree.rglob("*.so"):
                shutil.copy2(self._root / module.relative_to(self.tree), module)

    def run(self, tests: Sequence[str], seconds: float, *options: str) -> Results:
        """Run these tests with these options of pytest."""
        notes = self.notes / "results"
        notes.write_text("")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        code, output = self.pytest({"run": list(tests), "output": str(notes)}, ["-n", "0", *options, *files], seconds)
        noted = [json.loads(line) for line in notes.read_text().splitlines()]
        _clean(next((note["folder"] for note in noted if "folder" in note), ""))
        passed, failed = ({note[key] for note in noted if key in note} for key in ("passed", "failed"))
        return Results(code, passed, failed, output)

    def pytest(self, order: dict[str, Any], arguments: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Return the exit code, and what pytest printed. None: it did not end within these seconds."""
        path = self.notes / "order"
        path.write_text(json.dumps(order))
        env = os.environ | {"PYTHONPATH": f"{self.tree}{os.pathsep}{ROOT}", "MUTATE_ORDER": str(path)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # the next run in the copy starts faster
        with tempfile.TemporaryFile("w+") as output:
            command = [*_PYTEST, *arguments]
            process = subprocess.Popen(
                command,
                cwd=self.tree,
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


T = TypeVar("T")


@contextlib.contextmanager
def copies_of(root: Path, count: int) -> Iterator[list[Copy]]:
    """Have copies of the tree."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        yield [Copy(root, Path(folder, str(number))) for number in range(count)]


def on_copies(copies: Sequence[Copy], judge: Callable[[Copy, T], str], mutants: Iterable[T]) -> dict[T, str]:
    """Return the verdict on each mutant: one at a time in each copy."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge_one(mutant: T) -> str:
        copy = free.get()
        try:
            return judge(copy, mutant)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        pending = list(mutants)
        return dict(zip(pending, pool.map(judge_one, pending), strict=True))


def _clean(folder: str) -> None:
    """Remove the files and processes that a run of msgq's tests left because a mutant ended its process."""
    _, is_ours, word = folder.rpartition(FOLDER)
    if not is_ours or folder == os.environ.get("TMPDIR"):
        return
    for process in processes_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    for path in files_named(f"t{word}[0-9a-f]{{8}}"):
        remove(path)
    shutil.rmtree(folder, ignore_errors=True)

"""Builds and runs of the C programs of this folder, for their tests."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import LONGER
from tools.fuzz import build

WATCHDOG = 240
GOES = 4  # runs of a stress that must fail: a race is met by chance, and seldom where other work keeps the cores busy
# Built-in memcpy and memset would be inlined after the instrumentation, unseen by the sanitizer.
THREAD = ("-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-Wno-tsan")
FLAGS = {
    "native": ("-O2",),
    "impatient": ("-O2", "-DWATCHDOG_S=1"),
    "thread": THREAD,
    "address": build.SANITIZED,
}
LIMITS = [pytest.mark.watchdog(2 * WATCHDOG * max(LONGER, 1))]
needs_tsan = pytest.mark.skipif(not build.has_sanitizer("thread"), reason="the compiler has no thread sanitizer")
needs_asan = pytest.mark.skipif(
    not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"
)
SHORT, LONG = 0.4, 5.0 * LONGER  # seconds
#: The flags of a build, and the seconds of its first run.
RUNS = [
    ("native", SHORT),
    pytest.param("address", SHORT, marks=needs_asan),
    pytest.param("native", LONG, marks=pytest.mark.nightly),
    pytest.param("thread", LONG, marks=[pytest.mark.nightly, needs_tsan]),
]


class Stress:
    """A C program of this folder. Its arguments are the seconds, the seed, and more."""

    def __init__(self, name: str) -> None:
        self._source = Path(__file__).with_name(f"{name}.c")

    def check(self, seed: int, flags: str, seconds: float, *more: Any, seldom: Iterable[str] = ()) -> None:
        """Run a build of the program, each time for longer, until all its counters are above 0. Each run must succeed.

        Counters named in `seldom` may stay 0.
        """
        program = build.cached_program(self._source, *FLAGS[flags])
        for longer in (1, 4, 16):
            done = run(program, longer * seconds, seed, *more)
            assert done.returncode == 0, f"{done.args}\n{done.stderr[-6000:]}"
            counts = re.findall(r"(\w+) (\d+)", done.stdout)
            assert counts, f"{done.args} printed no counter: {done.stdout}"
            if all(int(value) or name in seldom for name, value in counts):
                return
        raise AssertionError(f"{done.args}: {done.stdout}")

    def run_until_failure(self, folder: Path, flags: str, seconds: float, *more: Any) -> str:
        """Compile the program to a folder and run it until it fails; return its error output. It tests the test."""
        program = build.compile_program(self._source, folder / self._source.stem, *FLAGS[flags])
        for seed in range(1, GOES + 1):
            done = run(program, seconds, seed, *more)
            if done.returncode:
                return done.stderr
        raise AssertionError(f"{done.args} found nothing in {GOES} goes\n{done.stdout}")


def run(program: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WATCHDOG * max(LONGER, 1))

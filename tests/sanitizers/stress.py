"""What the tests of the C programs here share: their builds, and a run of one with what it counted."""

from __future__ import annotations

import re
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.fuzz import build

WATCHDOG = 240
GOES = 4  # of a stress that shall fail: a race is met by chance, and seldom where other work keeps the cores busy
# Built-in memcpy and memset would be inlined after the instrumentation, unseen by the sanitizer.
THREAD = ("-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-Wno-tsan")
FLAGS = {
    "native": ("-O2",),
    "impatient": ("-O2", "-DWATCHDOG_S=1"),
    "thread": THREAD,
    "address": build.SANITIZED,
}
SLOW = [pytest.mark.ci, pytest.mark.watchdog(2 * WATCHDOG)]
needs_tsan = pytest.mark.skipif(not build.has_sanitizer("thread"), reason="the compiler has no thread sanitizer")
needs_asan = pytest.mark.skipif(
    not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"
)
BUILDS = ["native", pytest.param("thread", marks=needs_tsan), pytest.param("address", marks=needs_asan)]


class Stress:
    """A program of this folder, compiled in the test's own; its arguments are seconds, a seed, and `more`."""

    def __init__(self, name: str, folder: Path) -> None:
        self._source, self._target = Path(__file__).with_name(f"{name}.c"), folder / name

    def run(self, flags: str, seconds: float, *more: Any) -> subprocess.CompletedProcess[str]:
        """Compile it, with one of FLAGS, and run it for so long with a new seed, which it says when it fails."""
        program = build.compile_program(self._source, self._target, *FLAGS[flags])
        command = [str(program), str(seconds), str(secrets.randbits(16)), *map(str, more)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WATCHDOG)

    def counts(self, flags: str, seconds: float, *more: Any) -> dict[str, int]:
        """The same; it must succeed. Return what it counted."""
        done = self.run(flags, seconds, *more)
        assert done.returncode == 0, f"{done.args}\n{done.stderr[-6000:]}"
        return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", done.stdout)}

    def complaint(self, flags: str, seconds: float, *more: Any) -> str:
        """Run it until it fails, for a test of the test; return what it said."""
        for _ in range(GOES):
            done = self.run(flags, seconds, *more)
            if done.returncode:
                return done.stderr
        raise AssertionError(f"{done.args} found nothing in {GOES} goes\n{done.stdout}")


def check_counts(counts: dict[str, int], *seldom: str) -> None:
    """Everything that the stress is about took place, except perhaps for what comes seldom."""
    idle = [name for name, value in counts.items() if not value and name not in seldom]
    assert not idle, counts

"""Publishers and subscribers as threads of one process (threads.c), with the thread sanitizer and without.

What, why, and what a failure would mean are at the top of threads.c, with what this sanitizer can and cannot see.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from pathlib import Path

import pytest

from tests.mutated import mutated
from tools.fuzz import build

SOURCE = Path(__file__).with_name("threads.c")
SECONDS = 4
WATCHDOG = 240
# Built-in memcpy and memset would be inlined after the instrumentation, unseen by the sanitizer.
THREAD = ("-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-Wno-tsan")
pytestmark = [pytest.mark.slow, pytest.mark.watchdog(2 * WATCHDOG)]
needs_tsan = pytest.mark.skipif(not build.has_sanitizer("thread"), reason="the compiler has no thread sanitizer")


def run(program: Path) -> dict[str, int]:
    """Run the stress; returns what it counted."""
    seed = secrets.randbits(16)
    done = subprocess.run(
        [program, str(SECONDS), str(seed)], capture_output=True, text=True, check=False, timeout=WATCHDOG
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-6000:]}"
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", done.stdout)}


def check_counts(counts: dict[str, int]) -> None:
    """Everything that the stress is about took place."""
    idle = [name for name, value in counts.items() if not value and name != "membarrier"]
    assert not idle, counts


@needs_tsan
def test_no_shared_byte_is_touched_by_a_plain_access(tmp_path: Path) -> None:
    check_counts(run(build.compile_program(SOURCE, tmp_path / "threads", *THREAD)))


def test_native_stress_with_checksums(tmp_path: Path) -> None:
    check_counts(run(build.compile_program(SOURCE, tmp_path / "threads", "-O2")))


@needs_tsan
def test_sanitizer_sees_a_plain_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: without the copies made for it, the sanitizer must object."""
    mutated(tmp_path, monkeypatch, "HEADERS", "ground/atomics.h", "defined(__SANITIZE_THREAD__)", "0")
    program = build.compile_program(SOURCE, tmp_path / "threads", *THREAD)
    done = subprocess.run([program, "1", "1"], capture_output=True, text=True, check=False, timeout=WATCHDOG)
    assert done.returncode != 0
    assert "data race" in done.stderr


def test_stress_sees_a_missing_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: a subscriber that takes every copy for intact must be found out by the checksums."""
    check = "if (mq_unlikely(!mq_subscriber_validate(s)))\n        return false;"
    mutated(tmp_path, monkeypatch, "HEADERS", "ring/subscriber.h", check, "")
    program = build.compile_program(SOURCE, tmp_path / "threads", "-O2")
    done = subprocess.run([program, "10", "1"], capture_output=True, text=True, check=False, timeout=WATCHDOG)
    assert done.returncode == 1
    assert "threads:" in done.stderr

"""The handler of SIGBUS as threads and forks meet it (mapguard.c), under the address sanitizer and without.

What, why, and what a failure would mean are at the top of mapguard.c.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mutated import mutated
from tests.sanitizers.stress import WATCHDOG
from tools.fuzz import build

SOURCE = Path(__file__).with_name("mapguard.c")
pytestmark = pytest.mark.ci


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    program = build.compile_program(SOURCE, folder / "mapguard", *flags)
    return subprocess.run([program, "1"], capture_output=True, text=True, check=False, timeout=WATCHDOG)


@pytest.mark.parametrize("name", ["native", "address"])
def test_each_fault_is_found_and_nothing_else_is_touched(tmp_path: Path, name: Any) -> None:
    if name == "address" and not build.has_sanitizer("address,undefined"):
        pytest.skip("the compiler has no address sanitizer")
    done = run(tmp_path, *(build.SANITIZED if name == "address" else ("-O2",)))
    assert done.returncode == 0, done.stderr[-6000:]
    words = done.stdout.split()
    assert all(int(count) > 0 for count in words[1::2])


def test_the_stress_sees_a_fault_that_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: zeros without a word that says so."""
    clear = "mq_store_release_u64(&guard->whole, 0);"
    mutated(tmp_path, monkeypatch, "HEADERS", "ground/mapguard.h", clear, "(void)guard;")
    done = run(tmp_path, "-O2")
    assert "nobody noticed" in done.stderr

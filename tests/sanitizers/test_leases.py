"""A server and clients of frames as threads of one process (leases.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of leases.c, with what the thread sanitizer can and cannot see.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mutated import mutated
from tests.sanitizers.test_tsan import WATCHDOG, check_counts, needs_tsan
from tools.fuzz import build

SOURCE = Path(__file__).with_name("leases.c")
SECONDS = 2
FLAGS = {
    "native": ("-O2",),
    "thread": ("-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-Wno-tsan"),
    "address": build.SANITIZED,
}
pytestmark = [pytest.mark.slow, pytest.mark.watchdog(2 * WATCHDOG)]


def run(folder: Path, flags: tuple[str, ...], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    program = build.compile_program(SOURCE, folder / "leases", *flags)
    command = [str(program), str(seconds), str(secrets.randbits(16))]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WATCHDOG)


@pytest.mark.parametrize("name", ["native", pytest.param("thread", marks=needs_tsan), "address"])
def test_no_frame_changes_while_it_is_held(tmp_path: Path, name: Any) -> None:
    if name == "address" and not build.has_sanitizer("address,undefined"):
        pytest.skip("the compiler has no address sanitizer")
    done = run(tmp_path, FLAGS[name])
    assert done.returncode == 0, done.stderr[-6000:]
    words = done.stdout.split()
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    del counts["dropped"]  # all buffers are seldom held at once
    check_counts(counts)


LEASES = ("FRAME_HEADERS", "leases.h")
RELAXED = {
    "lease": ("mq_store_release_u32(&table->rows[row].lease[buffer], 0);", "table->rows[row].lease[buffer].value, 0"),
    "frame": (
        "mq_store_release_u32(&table->generation[buffer], generation);",
        "table->generation[buffer].value, generation",
    ),
}


@needs_tsan
@pytest.mark.parametrize("edge", RELAXED)
def test_sanitizer_sees_a_relaxed_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any) -> None:
    """A test of the test: leases that are returned, or generations that are stored, without release."""
    old, what = RELAXED[edge]
    mutated(tmp_path, monkeypatch, *LEASES, old, f"atomic_store_explicit(&{what}, memory_order_relaxed);")
    done = run(tmp_path, FLAGS["thread"], 3)
    assert done.returncode != 0
    assert "data race" in done.stderr


def test_stress_sees_a_missing_look_at_the_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: a server that takes buffers whoever holds them must be found out by the frames' words."""
    look = "if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation)"
    mutated(tmp_path, monkeypatch, *LEASES, look, "if (!table && buffer)")
    done = run(tmp_path, FLAGS["native"], 10)
    assert done.returncode == 1
    assert "leases:" in done.stderr

"""Attention among several publishers as threads (attention.c), with the thread sanitizer and without.

What, why, and what a failure would mean are at the top of attention.c. The orders are searched by tools/model.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sanitizers.stress import THREAD, WATCHDOG, needs_tsan
from tools.fuzz import build

SOURCE = Path(__file__).with_name("attention.c")
#: What may be missing in attention.h: (what stands there, what to write instead).
PIECES = {
    "the flag stands until the wake": (
        "waking = (old | MQ_ATTENTION_WAKING) + MQ_ATTENTION_WAKE;",
        "waking = (old & ~3u) + MQ_ATTENTION_WAKE;",
    ),
    "the wake": ("mq_futex_wake_all(mq_futex_word(word));\n    mq_compare", "mq_compare"),
}


def run(folder: Path, *flags: str, seconds: float = 2) -> subprocess.CompletedProcess[str]:
    program = build.compile_program(SOURCE, folder / "attention", *flags)
    seed = str(secrets.randbits(16))
    return subprocess.run([program, str(seconds), seed], capture_output=True, text=True, check=False, timeout=WATCHDOG)


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr[-6000:]
    assert all(int(count) for count in re.findall(r"\d+", done.stdout)), done.stdout


def test_nobody_sleeps_through_a_message_of_several_publishers(tmp_path: Path) -> None:
    check(run(tmp_path, "-O2"))


@needs_tsan
def test_no_word_is_touched_by_a_plain_access(tmp_path: Path) -> None:
    check(run(tmp_path, *THREAD))


@pytest.mark.parametrize("piece", PIECES)
def test_the_stress_sees_a_missing_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any) -> None:
    """A test of the test."""
    old, new = PIECES[piece]
    shutil.copytree(build.HEADERS, tmp_path / "impl", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    header = tmp_path / "impl" / "ground" / "attention.h"
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    monkeypatch.setattr(build, "HEADERS", tmp_path / "impl")
    done = run(tmp_path, "-O2", "-DWATCHDOG_S=1", seconds=10)
    assert done.returncode == 1
    assert "attention: somebody sleeps through" in done.stderr or "attention: the others" in done.stderr

"""The soak of `tools.chaos`, in its short form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import LONGER, ROOT
from tools.chaos.checker import check
from tools.chaos.history import History
from tools.chaos.kinds.topics import Topic
from tools.chaos.run import Incarnation, Run

SECONDS = 10.0


@pytest.mark.nightly
@pytest.mark.watchdog(SECONDS * max(LONGER, 1) + 240.0)
def test_history_is_correct_with_killed_and_stopped_processes(seed: int, prefix: str) -> None:
    """What: publishers and subscribers of topics, and processes that use all kinds of endpoints at once, come, go, are
    killed, stopped and superseded at random.

    Why: all the ways to send, to receive, to end and to be disturbed meet here, as nobody planned it.

    Failure would mean: a message, frame or value is torn, doubled, out of order or lost without being counted; or
    somebody hangs, or leaves files behind.
    """
    command = [sys.executable, "-m", "tools.chaos", "--seconds", str(SECONDS * LONGER), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


def run_with(tmp_path: Path, *publishers: tuple[int, int, int], received: int, lost: int, total: int) -> Run:
    """Return a run that is over: publishers by base, sent, made; one subscriber that stayed."""
    topic, history = Topic("topic", 4096, 0), History()
    run = Run(0, tmp_path, [topic], history, totals={"topic": total})
    for number, (base, sent, made) in enumerate((*publishers, (total, 0, 0)), 1):
        history[number].base, history[number].sent, history[number].made = base, sent, made
        run.incarnations.append(Incarnation(number, 0, topic, "publisher"))
    history[99].received, history[99].lost = received, lost
    run.incarnations.append(Incarnation(99, 0, topic, "blocking", first=0))
    return run


def test_checker_reports_no_error_in_correct_history(tmp_path: Path) -> None:
    assert not check(run_with(tmp_path, (0, 5, 5), (5, 3, 4), received=6, lost=3, total=9))
    assert not check(run_with(tmp_path, (0, 5, 5), (5, 0, 1), (5, 3, 4), received=6, lost=2, total=8))
    # a subscriber that the machine gave no time has lost all, and knows it
    assert not check(run_with(tmp_path, (0, 5, 5), received=0, lost=5, total=5))


@pytest.mark.parametrize(
    ("publishers", "received", "lost", "total", "wrong"),
    [
        (((0, 5, 5),), 4, 0, 5, "4 received, 0 lost, of 5"),
        (((0, 5, 5), (4, 3, 3)), 7, 0, 7, "the next began at 4"),
        (((0, 5, 6), (7, 3, 3)), 10, 0, 10, "the next began at 7"),
        (((1, 5, 5),), 6, 0, 6, "the first publisher found 1"),
    ],
    ids=["missing message", "too low count", "too high count", "late start"],
)
def test_checker_reports_errors_in_wrong_history(
    tmp_path: Path, publishers: Any, received: Any, lost: Any, total: Any, wrong: Any
) -> None:
    """A test of the test."""
    found = check(run_with(tmp_path, *publishers, received=received, lost=lost, total=total))
    assert wrong in "\n".join(found)

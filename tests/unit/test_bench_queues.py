"""The benchmark's table of work queues: what is there is measured, and nothing is lost or left."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_bench import LIMIT_S, PROJECT

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def measure(folder: Path, cases: str, peers: str) -> Any:
    """Measure cases of queues for a moment."""
    words = ["queues", "--quick", "--repeats", "1", "--only", cases, "--peers", peers, "--json", str(folder / "out")]
    run = subprocess.run(
        [sys.executable, "-m", "tools.bench", *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout, json.loads((folder / "out").read_text())


def test_queue_bench_compares_posix_and_multiprocessing_queues(tmp_path: Path) -> None:
    printed, data = measure(tmp_path, "pair_10,ping_asleep", "mp-queue")
    head = printed.splitlines()[0].strip("| ").split(" | ")
    assert head == [
        "work",
        "queue",
        "floor",
        "mp-queue",
        "ours / floor",
        "ours / posix_ipc",
        "cores apart",
        "target",
        "met",
    ]
    medians = [row["medians"] for row in data["rows"]]
    assert all(each["queue"] > 0 and each["mp-queue"] > 0 for each in medians)
    assert all(value is None or value > 0 for value in data["rows"][1]["reached"])


@pytest.mark.nightly
def test_queue_bench_with_four_senders_and_workers_loses_no_message(tmp_path: Path) -> None:
    """The role that leads them receives what the workers left, and would wait for what is lost until it is ended."""
    _, data = measure(tmp_path, "crowd_128", "pipe,mp-queue")
    (row,) = data["rows"]
    assert {"queue", "mp-queue"} == set(row["medians"])
    assert data["failed"] == []


@pytest.mark.nightly
def test_queue_bench_reports_depth_above_kernel_limit(tmp_path: Path) -> None:
    pytest.importorskip("posix_ipc")
    printed, data = measure(tmp_path, "pair_10,pair_65528", "posix_ipc")
    assert "posix_ipc" not in data["rows"][1]["medians"]
    assert "- pair_65528 of posix_ipc was not measured: " in printed

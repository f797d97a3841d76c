"""The benchmark's table of records: blackboards beside ours, who watches does not disturb, and nothing is left."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_bench import LIMIT_S, PROJECT
from tools.bench.adapters.base import Call
from tools.bench.loops import compile_loop

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def measure(folder: Path, cases: str, peers: str = "") -> Any:
    """Measure cases of records for a moment."""
    words = ["records", "--quick", "--repeats", "1", "--only", cases, "--json", str(folder / "out")]
    run = subprocess.run(
        [sys.executable, "-m", "tools.bench", *words, *(["--peers", peers] if peers else [])],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout, json.loads((folder / "out").read_text())


def test_record_bench_compares_blackboards_of_two_peers(tmp_path: Path) -> None:
    printed, data = measure(tmp_path, "write_board,read_many")
    head = printed.splitlines()[0].strip("| ").split(" | ")
    assert head[:3] == ["work", "records", "floor"]
    assert head[-6:] == [
        "ours / floor",
        "ours / kickmsg-board",
        "ours / iceoryx2-board",
        "cores apart",
        "target",
        "met",
    ]
    there = {"records", "floor", "kickmsg-board", "iceoryx2-board"} - set(data["absent"])
    assert set(data["rows"][0]["medians"]) == there
    assert set(data["rows"][1]["medians"]) == there & {"records", "floor"}  # blackboards have no call for many
    assert data["failed"] == []


@pytest.mark.nightly
def test_record_bench_excludes_waiting_time_of_watching_processes(tmp_path: Path) -> None:
    _, data = measure(tmp_path, "write_seqlock_5", "kickmsg-board")
    (sample,) = [each for each in data["samples"] if each["system"] == "records"]
    assert max(sample["cores"]) > 1.2  # who writes, and the others
    assert all(0 <= waited <= 1 for waited in sample["waited"])


@pytest.mark.nightly
def test_record_queue_bench_compares_ring_written_in_c(tmp_path: Path) -> None:
    _, data = measure(tmp_path, "spmc")
    (row,) = data["rows"]
    assert set(row["medians"]) == {"records", "floor"}
    reached = row["reached"][0]
    assert reached is None or reached > 0  # None: other load disturbed all of it


@pytest.mark.nightly
def test_record_bench_measures_read_write_and_change_cases(tmp_path: Path) -> None:
    cases = "read_board,mpmc,write_many,instant,changes_1k,seen_seqlock_5,seen_board,asleep_seqlock,asleep_board"
    cases += ",tracked,open,two_same"
    _, data = measure(tmp_path, cases, "kickmsg-board")
    assert len(data["rows"]) == len(cases.split(","))
    assert all("records" in row["medians"] for row in data["rows"])
    assert data["failed"] == []


def test_bench_loop_can_contain_statement_instead_of_call() -> None:
    place = bytearray(4)
    compile_loop("send", b"abcd", send=Call(place, "message", "CALL[:] = ARGUMENTS"))(1)
    assert place == b"abcd"

"""The benchmark runs, reports what it ran in the documented shape, and cleans up; its figures are nobody's promise."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.leftovers import new_token

PROJECT = Path(__file__).resolve().parents[2]
CASES = ["receive_empty", "stream_64", "open_fresh"]
LIMIT_S = 120
pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def command(*options: Any) -> Any:
    return [sys.executable, "-m", "tools.bench", "--quick", "--repeats", "1", "--peers", "pipe", *options]


def environment(folder: Any) -> Any:
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(PROJECT)}


@pytest.fixture
def short_folder() -> Iterator[Any]:
    # Not tmp_path: addresses of Unix sockets have no room for long names.
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bench")
    files = {"json": folder / "out.json", "markdown": folder / "out.md"}
    run = subprocess.run(
        command("--only", ",".join(CASES), "--json", files["json"], "--markdown", files["markdown"]),
        cwd=PROJECT,
        env={**os.environ, "OPENPILOT_PREFIX": new_token()},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout, json.loads(files["json"].read_text()), files["markdown"].read_text()


def test_bench_table_has_row_per_case_and_column_per_system(finished: Any) -> None:
    table = [line.strip("| ").split(" | ") for line in finished[0].splitlines() if line.startswith("|")]
    head = table[0]
    assert head == ["work", "msgq", "floor", "pipe", "ours / floor", "ours / best peer", "cores apart", "target", "met"]
    rows = table[2 : 2 + len(CASES)]
    assert [row[0] for row in rows] == [
        "receive(), no message waiting",
        "two processes, 64 B, nothing lost, one by one",
        "open the first publisher and subscriber of a new topic",
    ]
    assert all(len(row) == len(head) for row in rows)


def test_second_bench_table_has_percentiles_and_core_distance(finished: Any) -> None:
    table = [line.strip("| ").split(" | ") for line in finished[0].splitlines() if line.startswith("|")]
    head = next(row for row in table if row[0] == "one by one: p50, p99, p99.9")
    row = table[table.index(head) + 2]
    assert head == ["one by one: p50, p99, p99.9", "msgq", "floor", "pipe", "ours / floor", "cores apart"]
    assert row[0] == "open the first publisher and subscriber of a new topic"
    assert all(cell.count(" / ") == 2 for cell in row[1:3])
    assert row[-1] == "-" or " ns (" in row[-1]


def test_bench_markdown_file_equals_printed_text_with_machine_facts(finished: Any) -> None:
    printed, _, file = finished
    assert file.strip() == printed.strip()
    for fact in ("- CPU: ", "- kernel: ", "- Python: ", "- compiler: ", "- commit: "):
        assert fact in file


def test_bench_json_has_all_slices_of_installed_systems(finished: Any) -> None:
    data = finished[1]
    assert {"msgq", "floor", "pipe"} == set(data["versions"]) | set(data["absent"])
    assert {(each["case"], each["system"]) for each in data["samples"]} == {
        (case, system) for case in CASES for system in data["versions"]
    }
    for sample in data["samples"]:
        assert all(value > 0 for value in sample["slices"])
        assert min(sample["slices"]) <= sample["value"] <= max(sample["slices"])
        assert len(sample["waited"]) == len(sample["slices"])


def test_bench_json_has_latency_percentiles(finished: Any) -> None:
    opens = [sample for sample in finished[1]["samples"] if sample["case"] == "open_fresh"]
    assert opens
    for sample in opens:
        assert 0 < sample["p50"] <= sample["p90"] <= sample["p99"] <= sample["p99.9"] <= sample["max"]


def test_bench_json_has_ratio_of_measured_systems(finished: Any) -> None:
    data = finished[1]
    for row in data["rows"]:
        both = {"msgq", "floor"} <= set(row["medians"])
        assert (row["ours_to_floor"] is not None) == both


def test_bench_refuses_unknown_case_and_lists_known_cases(short_folder: Any) -> None:
    run = subprocess.run(
        command("--only", "nonsense"), cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert run.returncode == 2
    assert "nonsense" in run.stderr
    assert "send_0" in run.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.nightly
def test_interrupted_bench_leaves_no_files(short_folder: Any, number: Any) -> None:
    """Interrupted while processes measure: their files are there before, and all is gone after."""
    run = subprocess.Popen(
        command("--only", "ping_asleep", "--repeats", "50"),
        cwd=PROJECT,
        env=environment(short_folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        tag = await_tag(short_folder)
        run.send_signal(number)
        _, said = run.communicate(timeout=LIMIT_S)
    finally:
        run.kill()
    assert run.returncode == 128 + number, said
    assert list(short_folder.iterdir()) == []
    assert list(Path("/dev/shm").glob(f"*{tag}*")) == []


def await_tag(folder: Any) -> Any:
    """Wait until a measurement has files in shared memory, and return the tag in their names."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for made in folder.iterdir():
            if list(Path("/dev/shm").glob(f"{made.name}*-ping")):
                return made.name
        time.sleep(0.01)
    raise AssertionError("no measurement has begun")


@pytest.mark.nightly
@pytest.mark.watchdog(LIMIT_S)
def test_bench_compare_shows_each_measurement_of_two_checkouts() -> None:
    command = [sys.executable, "-m", "tools.bench.compare", str(PROJECT), "--rounds", "1", "--quick"]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    rows = run.stdout.splitlines()[1:]
    assert [row.split()[0].rstrip(",") for row in rows] == [
        "send",
        "send",
        "ping-pong",
        "ping-pong",
        "wake-ups",
        "idle",
    ]
    figures = [[float(word) for word in row.split()[-5:]] for row in rows]
    assert all(figure > 0 for row in figures for figure in row[:2])
    assert all(ratio >= 0 for row in figures for ratio in row[2:]), "one of 0.0004 is printed as 0"


def channels(folder: Path, cases: str) -> Any:
    """Measure cases of channels, whose processes are more than two or get killed."""
    words = [
        "channels",
        "--quick",
        "--repeats",
        "1",
        "--peers",
        "kickmsg",
        "--only",
        cases,
        "--json",
        str(folder / "out"),
    ]
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


def test_channel_bench_compares_peers_after_killed_publisher(tmp_path: Path) -> None:
    printed, data = channels(tmp_path, "after_kill")
    head = printed.splitlines()[0].strip("| ").split(" | ")
    assert head[1] == "channel"
    assert head[-6:] == ["ours / floor", "ours / kickmsg", "ours / iceoryx2", "cores apart", "target", "met"]
    (row,) = data["rows"]
    (sample,) = [each for each in data["samples"] if each["system"] == "channel"]
    assert row["medians"]["channel"] in sample["slices"]  # a slice that other programs disturb does not count
    assert sample["count"] >= 1
    assert 0 < sample["cores"][0] < 3
    assert row["reached"] == [row["medians"]["channel"]]


@pytest.mark.nightly
def test_channel_bench_measures_burst_with_ten_subscribers(tmp_path: Path) -> None:
    rows = channels(tmp_path, "send_1,burst_64")[1]["rows"]
    assert 0 < rows[1]["medians"]["channel"] <= 100


@pytest.mark.parametrize("words", [["channels", "--only", "idle"], ["--peers", "channel"]])
def test_bench_refuses_case_or_peer_of_another_suite(words: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.bench", *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 2
    assert "is none of" in run.stderr

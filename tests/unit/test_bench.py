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
from tools.bench.__main__ import main
from tools.bench.numbers import SHARES
from tools.bench.result import Result
from tools.bench.summary import summarize

PROJECT = Path(__file__).resolve().parents[2]
CASES = ["receive_empty", "stream_64", "open_fresh"]
LIMIT_S = 120
pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def command(*options: Any) -> Any:
    return [sys.executable, "-m", "tools.bench", "--quick", "--repeats", "1", "--peers", "pipe", *options]


def environment(folder: Any) -> Any:
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(PROJECT)}


def measure(folder: Path, cases: str, *options: str, limit_s: float = LIMIT_S) -> Any:
    """Measure cases for a moment. Return the printed tables and the result."""
    words = ["--quick", "--repeats", "1", "--only", cases, "--json", str(folder / "out.json"), *options]
    run = subprocess.run(
        [sys.executable, "-m", "tools.bench", *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout, Result.read(folder / "out.json")


@pytest.fixture
def short_folder() -> Iterator[Any]:
    # Not tmp_path: addresses of Unix sockets have no room for long names.
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        yield Path(folder)


of_one_run = pytest.mark.xdist_group("bench")  # one process of pytest-xdist measures for these tests


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPILOT_PREFIX", new_token())
        printed, result = measure(folder, ",".join(CASES), "--peers", "pipe")
    return printed, json.loads((folder / "out.json").read_text()), result


@of_one_run
def test_bench_table_has_row_per_case_and_column_per_system(finished: Any) -> None:
    table = [line.strip("| ").split(" | ") for line in finished[0].splitlines() if line.startswith("|")]
    head = table[0]
    assert head == [
        *("row", "work", "msgq", "floor", "pipe", "msgq / floor", "msgq / best peer", "cores apart", "target", "met"),
    ]
    rows = table[2 : 2 + len(CASES)]
    assert [row[:2] for row in rows] == [
        ["`receive_empty`", "receive(), no message waiting"],
        ["`stream_64`", "64 B, nothing lost, one by one, the receiver polls"],
        ["`open_fresh`", "open the first publisher and subscriber of a new topic"],
    ]
    assert all(len(row) == len(head) for row in rows)


@of_one_run
def test_second_bench_table_has_percentiles_of_timed_calls(finished: Any) -> None:
    table = [line.strip("| ").split(" | ") for line in finished[0].splitlines() if line.startswith("|")]
    head = next(row for row in table if row[1] == "one by one: p50, p99, p99.9")
    row = table[table.index(head) + 2]
    assert head == ["row", "one by one: p50, p99, p99.9", "msgq", "floor", "pipe", "msgq / floor"]
    assert row[:2] == ["`open_fresh`", "open the first publisher and subscriber of a new topic"]
    assert all(cell.count(" / ") == 2 for cell in row[2:4])


@of_one_run
def test_bench_prints_and_stores_machine_facts(finished: Any) -> None:
    printed, data, _ = finished
    for fact in ("CPU", "kernel", "Python", "compiler", "commit", "date", "command"):
        assert f"- {fact}: {data['machine'][fact]}" in printed


@of_one_run
def test_bench_json_has_all_slices_of_installed_systems(finished: Any) -> None:
    data = finished[1]
    assert {"msgq", "floor", "pipe"} == set(data["versions"]) | set(data["absent"])
    assert {(each["case"], each["system"]) for each in data["samples"]} == {
        (case, system) for case in CASES for system in data["versions"]
    }
    for sample in data["samples"]:
        assert all(value > 0 for value in sample["slices"])
        assert len(sample["waited"]) == len(sample["slices"])


@of_one_run
def test_bench_json_has_latency_percentiles(finished: Any) -> None:
    opens = [sample for sample in finished[1]["samples"] if sample["case"] == "open_fresh"]
    assert opens
    for sample in opens:
        assert len(sample["latencies"]) == len(SHARES)
        assert sample["latencies"] == sorted(sample["latencies"])
        assert sample["latencies"][0] > 0
        assert sample["count"] > 0


@of_one_run
def test_bench_json_has_ratio_of_measured_systems(finished: Any) -> None:
    for row in summarize(finished[2]):
        both = {"msgq", "floor"} <= set(row.medians)
        assert (row.beside("floor") is not None) == both


def test_bench_resumes_with_rows_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "out.json"

    def measure(*options: str) -> Any:
        words = command("--only", "receive_empty,pair", "--json", str(path), *options)
        return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert measure().returncode == 0
    result = Result.read(path)
    kept = [sample for sample in result.samples if sample["case"] == "receive_empty"]
    result.samples = list(kept)
    result.write(path)
    resumed = measure("--resume")
    assert resumed.returncode == 0, resumed.stderr
    progress = [line for line in resumed.stderr.splitlines() if line.startswith("repeat ")]
    assert progress == ["repeat 1 of 1, 1 to measure: pair"]
    samples = Result.read(path).samples
    assert samples[: len(kept)] == kept
    assert {sample["case"] for sample in samples[len(kept) :]} == {"pair"}
    refused = measure("--resume", "--repeats", "2")
    assert refused.returncode == 1
    assert "was measured with repeats=1" in refused.stderr


def test_bench_measures_all_kinds_in_the_same_rounds(tmp_path: Path) -> None:
    _, result = measure(tmp_path, "kind_ping")
    kinds = {"topic", "channel", "queue", "seqlock", "board"}
    assert {sample["system"] for sample in result.samples} == kinds | (set(result.versions) & {"floor"})
    assert {len(sample["slices"]) for sample in result.samples} == {2}
    assert all(min(sample["slices"]) > 0 for sample in result.samples)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.nightly
def test_interrupted_bench_leaves_no_files(short_folder: Any, number: Any) -> None:
    """Interrupted while processes measure: their files are there before, and all is gone after."""
    run = subprocess.Popen(
        command("--only", "ping_asleep", "--repeats", "50", "--peers", "iceoryx2", "--json", short_folder / "out.json"),
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
    assert [each.name for each in short_folder.iterdir() if each.name != "out.json"] == []
    assert list(Path("/dev/shm").glob(f"*{tag}*")) == []


INTERRUPTED = """
import os, sys
from tools.bench.cases import CASES
from tools.bench.entry import Entry
from tools.bench.process import import_systems
from tools.bench.workspace import workspace

with workspace() as space:
    import_systems()
    print(space.tag, flush=True)
    for _ in range(3):
        Entry(space, CASES[0], sys.argv[1])  # the process starts, and creates its files later
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("system", ["msgq", "iceoryx2"])
def test_bench_interrupted_while_processes_start_leaves_no_files(short_folder: Any, system: str, number: int) -> None:
    pytest.importorskip(system)
    command = [sys.executable, "-c", INTERRUPTED, system, str(int(number))]
    environ = {**environment(short_folder), "OPENPILOT_PREFIX": (token := new_token())}
    # The output is a pipe, which ends with the last process.
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode in (128 + number, -number), run.stderr
    tag = run.stdout.strip()
    assert tag.startswith(token)
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


@pytest.mark.ci
def test_bench_measures_another_checkout_in_the_same_rounds(tmp_path: Path) -> None:
    """The other checkout has the library only, so its processes do not use a benchmark of its own."""
    for name in ("msgq", "visionipc"):
        (tmp_path / name).symlink_to(PROJECT / name)
    _, result = measure(tmp_path, "receive_empty,ping_asleep", "--against", str(tmp_path))
    assert result.against == str(tmp_path)
    for row in summarize(result):
        assert {"msgq", "other"} <= set(row.medians) <= {"msgq", "other", "floor"}
        assert row.best_peer == "other"


def test_bench_imports_library_of_the_other_checkout(tmp_path: Path) -> None:
    (tmp_path / "msgq").mkdir()
    (tmp_path / "msgq/__init__.py").write_text("raise ImportError('the other library')")
    printed, _ = measure(tmp_path, "receive_empty", "--against", str(tmp_path))
    assert "- other is absent: ImportError: the other library" in printed


def test_channel_bench_compares_peers_after_killed_publisher(tmp_path: Path) -> None:
    printed, result = measure(tmp_path, "channel_after_kill", "--peers", "kickmsg")
    (row,) = summarize(result)
    assert "## channels\n" in printed
    (sample,) = [each for each in result.samples if each["system"] == "msgq"]
    assert row.medians["msgq"] in sample["slices"]  # a slice that other programs disturb does not count
    assert sample["count"] >= 1
    assert 0 < sample["cores"][0] < 3
    assert sample["latencies"][SHARES.index(0.5)] <= row.medians["msgq"]


@pytest.mark.nightly
def test_channel_bench_measures_burst_with_ten_subscribers(tmp_path: Path) -> None:
    _, result = measure(tmp_path, "channel_send_1,channel_burst_64", "--peers", "kickmsg")
    assert 0 < summarize(result)[1].medians["msgq"] <= 100


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--only", "channel_idle"], "'channel_idle' is none of topics, "),
        (["--peers", "channel"], "'channel' is none of kickmsg, "),
        (["--against", "/proc"], "/proc has no folder msgq"),
    ],
)
def test_bench_refuses_unknown_names(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert reason in capsys.readouterr().err

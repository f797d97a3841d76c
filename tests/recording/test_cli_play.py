"""`msgq play` and `msgq bag diff`: options, keys, what they print, how they end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import MultiplePublishersError
from msgq.impl import zeromq
from msgq.recording import LogReader
from tests.command import Process, run, start
from tests.recording.logs import write_log
from tests.recording.test_compare import json_log
from tests.support import DEADLINE, DEADLINE_MS, Task, wait_until

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS
PROGRAM = """
import json, msgq

def halves():
    numbers, out = msgq.sub_sock("number"), msgq.pub_sock("half")
    while True:
        out.send(json.dumps(json.loads(numbers.receive()) / 2).encode())

def patient():
    numbers, out = msgq.sub_sock("number", timeout=100), msgq.pub_sock("half")
    while True:
        message = numbers.receive()
        if message is not None:
            out.send(json.dumps(json.loads(message) / 2).encode())

def restless():
    numbers, out = msgq.sub_sock("number", timeout=1000), msgq.pub_sock("half")
    while True:
        out.send(numbers.receive() or b"null")

def echo(name):
    source, out = msgq.sub_sock(name), msgq.pub_sock(f"of_{name}")
    while True:
        out.send(source.receive())

def ones():
    echo("one")

def twos():
    echo("two")

count = 0

def tardy():
    global count
    count += 1
    numbers, out, silent = msgq.sub_sock("number"), msgq.pub_sock("half"), msgq.sub_sock("silent", timeout=count)
    while True:
        message = numbers.receive()
        if message == b"5":
            silent.receive()
        out.send(message)

def forgetful():
    global count
    numbers, out = msgq.sub_sock("number"), msgq.pub_sock("half")
    while True:
        count += 1
        numbers.receive()
        out.send(b"%d" % count)
"""


def write_numbers(path: Path, count: int = 10, period_ns: int = NS // 100, endpoint: str = "number") -> Path:
    return write_log(path, *((endpoint, BEGIN + i * period_ns, b"%d" % i) for i in range(count)))


def test_play_publishes_recorded_messages(prefix: str, tmp_path: Path) -> None:
    sub = msgq.sub_sock("new")
    path = write_numbers(tmp_path / "a.mcap")
    result = run("play", path, "--remap", "number:=new", "--clock", "clock", "--wait-for", "new", "--rate", 2)
    assert "10 messages of 1 endpoint," in result.stdout
    assert msgq.drain_sock_raw(sub) == [b"%d" % i for i in range(10)]
    assert [topic.endpoint for topic in stats.topics()] == ["clock", "new"]


def test_play_remap_pattern_renames_endpoints(prefix: str, tmp_path: Path) -> None:
    names = ("/camera/front", "/camera/rear", "speed")
    path = write_log(tmp_path / "a.mcap", *((name, BEGIN + i, b"%d" % i) for i, name in enumerate(names)))
    run("play", path, "--remap", r"/camera/(.*):=cam_\1", "--remap", "speed:=velocity")
    assert [topic.endpoint for topic in stats.topics()] == ["cam_front", "cam_rear", "velocity"]
    run("play", path, "--remap", "/camera/*:=all", code=1)
    run("play", path, "--remap", r"/camera/*:=\1", code=1)
    run("play", path, "--endpoint", "/camera/front")
    assert "camera.front" in [topic.endpoint for topic in stats.topics()]


def test_play_options_select_endpoints_and_times(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", *((name, BEGIN + i * NS, b"%d" % i) for i, name in enumerate("abcabc")))
    sub = msgq.sub_sock("b")
    options = ["-e", "^[ab]$", "-x", "a", "--start", 1, "--end", 6, "--rate", "inf", "--loops", 2, "--json"]
    *_, last = map(json.loads, run("play", path, *options).stdout.splitlines())
    assert (last["messages"], last["passes"], last["final"]) == (4, 2, True)
    assert msgq.drain_sock_raw(sub) == [b"1", b"4", b"1", b"4"]
    assert json.loads(run("play", path, "--duration", 1.5, "--rate", "inf", "--json").stdout)["messages"] == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--rate", 0),
        ("--remap", "a"),
        ("--remap", "a:=b", "--remap", "a:=c"),
        ("--remap", "(:=b"),
        ("--deterministic", "json:loads", "--idle-timeout", -1),
        ("--loop", "--loops", 2),
        ("--reference", "x"),
        ("--tolerance", "a=1"),
        ("--deterministic", "x"),
        ("--deterministic", "nowhere:f"),
        ("--deterministic", "json:nothing"),
        ("--deterministic", "json:loads", "-t", "a"),
        ("--deterministic", "json:loads", "-t", "a=b%"),
    ],
)
def test_play_with_wrong_options_is_usage_error(tmp_path: Path, options: Any) -> None:
    run("play", write_numbers(tmp_path / "a.mcap"), *options, code=2)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--endpoint", "x"), "no endpoint of the recording matches x"),
        (("--remap", "x:=y"), "remapped endpoint not found in the recording: x"),
        (("--start", 9), "nothing to play"),
        (("--remap", "number:=a/b"), "a/b"),
    ],
)
def test_play_error_is_one_line(prefix: str, tmp_path: Path, options: Any, word: Any) -> None:
    result = run("play", write_numbers(tmp_path / "a.mcap"), *options, code=1)
    assert word in result.output
    assert result.output.count("\n") == 1


def test_play_without_log_is_usage_error(tmp_path: Path) -> None:
    run("play", tmp_path / "none.mcap", code=1)
    run("play", code=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_play_after_signal_closes_publishers(prefix: str, tmp_path: Path, number: Any) -> None:
    path = write_numbers(tmp_path / "a.mcap", 1000, NS)
    sub = msgq.sub_sock("number", timeout=DEADLINE_MS)
    with start("play", path, "--json") as process:
        assert sub.receive() == b"0"
        said, _ = process.end(number)
    assert said[-1]["messages"] == 1
    assert stats.topic("number").publisher is None


@contextmanager
def at_terminal(*arguments: object) -> Iterator[tuple[Process, int]]:
    """Play on a terminal of its own; give the process, and our end of the terminal."""
    ours, theirs = pty.openpty()
    terminal: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with start("play", *arguments, env={"TERM": "xterm", "COLUMNS": "150"}, **terminal) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            os.close(ours)


def shown_until(terminal: int, text: str) -> str:
    """Return what a terminal shows, up to and with a text."""
    shown = b""
    until = time.monotonic() + DEADLINE
    while text not in shown.decode(errors="replace"):
        assert select.select([terminal], [], [], max(0, until - time.monotonic()))[0], shown
        shown += os.read(terminal, 4096)
    return shown.decode(errors="replace")


def wait_for_exit_code(process: Process, terminal: int) -> int:
    """Return the exit code of who plays; what it still shows is read, for it would wait for that."""
    with suppress(OSError):  # the terminal is gone
        while select.select([terminal], [], [], DEADLINE)[0]:
            os.read(terminal, 4096)
    return process.wait(DEADLINE)


def test_keyboard_during_play_pauses_and_steps(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap", 1000, NS)
    sub = msgq.sub_sock("number", timeout=DEADLINE_MS)
    with at_terminal(path, "--start-paused") as (process, terminal):
        shown = shown_until(terminal, "paused")
        assert "of 999.0 s" in shown
        for number, key in enumerate((b"s", b"\x1b[C", b"s")):
            os.write(terminal, key)
            assert sub.receive() == b"%d" % number
        os.write(terminal, b" ")
        before = time.monotonic()
        assert sub.receive() == b"3"
        assert time.monotonic() - before > 0.5
        os.write(terminal, b"q")
        assert wait_for_exit_code(process, terminal) == 0


def test_keyboard_during_play_seeks_and_changes_rate(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap", 1000, NS)
    sub = msgq.sub_sock("number", timeout=DEADLINE_MS)
    with at_terminal(path, "--start-paused") as (process, terminal):
        assert re.search(r"[^\\]\r?\n.*space: pause", shown_until(terminal, "q: quit"))
        for keys, number in ((b"fffs", 15), (b"bs", 10), (b"s", 11), (b"fbs", 11)):
            os.write(terminal, keys)
            assert sub.receive() == b"%d" % number
        os.write(terminal, b"\x1b[A+\x1b[A")
        shown_until(terminal, "rate 8,")
        os.write(terminal, b"-\x1b[B")
        shown_until(terminal, "rate 2,")
        os.write(terminal, b"-------------------")
        shown_until(terminal, "rate 0.000976562,")
        os.write(terminal, b"+" * 22)
        shown_until(terminal, "rate inf,")
        os.write(terminal, b"x\x1b[Hq")  # keys that mean nothing, and the last one
        assert wait_for_exit_code(process, terminal) == 0


def test_play_with_infinite_rate_can_be_slowed_down(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap", 1000, NS)
    with at_terminal(path, "--start-paused", "--rate", "inf") as (process, terminal):
        shown_until(terminal, "rate inf,")
        os.write(terminal, b"-")
        shown_until(terminal, "rate 1024,")
        os.write(terminal, b" ")
        assert wait_for_exit_code(process, terminal) == 0


# ---- comparing ----


def test_bag_diff_compares_logs(tmp_path: Path) -> None:
    a = json_log(tmp_path / "a.mcap", {"x": 1.0}, {"x": 2.0})
    b = json_log(tmp_path / "b.mcap", {"x": 1.0}, {"x": 2.001})
    assert "the same: 2 messages" in run("bag", "diff", a, a).stdout
    assert "x: 2.0 at" in run("bag", "diff", a, b, code=1).stdout
    for tolerance in ("state=0.01", "state:x=0.1%", "*=0.0001,1%", "state:x=any"):
        run("bag", "diff", a, b, "-t", tolerance, "--time-tolerance", 0)
    run("bag", "diff", a, b, "-t", "state:y=1", code=1)
    said = json.loads(run("bag", "diff", a, b, "--json", code=1).stdout)
    assert (said["same"], said["first"]["index"], said["first"]["b"]) == (False, 1, 2.001)
    assert said["endpoints"] == {"state": {"a": 2, "b": 2, "different": 1}}
    run("bag", "diff", a, tmp_path / "none.mcap", code=1)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"program_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_replay_command_compares_two_runs(tmp_path: Path, program: str) -> None:
    log = write_numbers(tmp_path / "a.mcap")
    assert (
        "the same: 10 messages compared, of 1 endpoints"
        in run("play", log, "--deterministic", f"{program}:halves").stdout
    )
    assert "time" in run("play", log, "--deterministic", f"{program}:tardy", code=1).stdout
    result = run("play", log, "--deterministic", f"{program}:forgetful", code=1)
    assert "'half' message 0" in result.stdout


def test_replay_command_ends_with_programs_that_send_periodically(tmp_path: Path, program: str) -> None:
    log = write_numbers(tmp_path / "a.mcap")
    assert "the same: 10 messages" in run("play", log, "--deterministic", f"{program}:patient").stdout
    result = run("play", log, "--deterministic", f"{program}:restless", "--max-runtime", 5, "--idle-timeout", 2)
    assert "the same: 15 messages" in result.stdout
    result = run("play", log, "--deterministic", f"{program}:restless", "--idle-timeout", 0.5)
    assert "the same: 10 messages" in result.stdout


def test_replay_command_ignores_renamed_inputs_in_comparison(tmp_path: Path, program: str) -> None:
    log = write_numbers(tmp_path / "a.mcap", endpoint="/old/number")
    kept = tmp_path / "kept.mcap"
    arguments = ("play", log, "--remap", r"/old/(.*):=\1", "--deterministic", f"{program}:halves")
    run(*arguments, "-o", kept)
    assert "the same: 10 messages compared, of 1 endpoints" in run(*arguments, "--reference", kept).stdout


def test_replay_command_compares_with_reference(tmp_path: Path, program: str) -> None:
    log = write_numbers(tmp_path / "a.mcap")
    kept = tmp_path / "kept.mcap"
    arguments = ("play", log, "--deterministic", f"{program}:halves")
    run(*arguments, "-o", kept)
    assert [message.data for message in LogReader(kept)][-1] == b"4.5"
    run(*arguments, "--reference", kept, "--time-tolerance", 0)
    other = json_log(tmp_path / "other.mcap", *(i / 2 + 0.001 * (i == 7) for i in range(10)), endpoint="half")
    said = json.loads(run(*arguments, "--reference", other, "--json", code=1).stdout)
    assert (said["messages"], said["first"]["endpoint"], said["first"]["index"]) == (10, "half", 7)
    run(*arguments, "--reference", other, "-t", "half=0.01")
    run("bag", "merge", log, kept, "-o", tmp_path / "both.mcap")
    run(*arguments, "--reference", tmp_path / "both.mcap")  # the inputs are not compared
    run(*arguments, "--reference", log, code=1)  # there it said nothing
    run(*arguments, "--reference", log, "--compare-endpoints", "nothing", code=1)  # compares no endpoint


def test_play_ends_after_last_message(prefix: str, tmp_path: Path) -> None:
    said = run("play", write_numbers(tmp_path / "a.mcap"), "--json").stdout
    assert json.loads(said.splitlines()[-1])["messages"] == 10


# ---- options of playback ----


@pytest.mark.parametrize(("by", "ticks"), [("publish_time", 11), ("log_time", 91)])
def test_play_time_source_selects_publish_or_log_time(prefix: str, tmp_path: Path, by: str, ticks: int) -> None:
    path = write_log(tmp_path / "a.mcap", ("a", BEGIN, b"1"), ("b", BEGIN + 9 * NS // 10, b"2", BEGIN + NS // 10))
    run("play", path, "--rate", "inf", "--clock", "clock", "--time-source", by)
    assert stats.topic("clock").messages == ticks


def test_play_waits_for_readers_before_first_message(prefix: str, tmp_path: Path) -> None:
    def subscribe() -> list[bytes]:
        wait_until(lambda: "number" in stats.topic_inodes() and stats.topic("number").publisher)
        with msgq.sub_sock("number", timeout=DEADLINE_MS) as sub:
            return [sub.receive() or b"" for _ in range(10)]

    reader = Task(subscribe)
    run("play", write_numbers(tmp_path / "a.mcap"), "--rate", "inf", "--wait-for-readers")
    assert reader.result() == [b"%d" % i for i in range(10)]


def test_play_clock_rate_sets_clock_ticks_per_log_second(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap", 11, NS // 10)
    run("play", path, "--rate", "inf", "--clock", "slow", "--clock-rate", 5)
    run("play", path, "--rate", "inf", "--clock", "fast", "--clock-rate", 50)
    assert [stats.topic(name).messages for name in ("slow", "fast")] == [6, 51]


def test_play_backend_publishes_on_that_backend(prefix: str, endpoint: str, tmp_path: Path) -> None:
    with zeromq.SubSocket() as sub:
        sub.connect(zeromq.Context(), endpoint)
        sub.setTimeout(DEADLINE_MS)
        path = write_numbers(tmp_path / "a.mcap", endpoint=endpoint)
        run("play", path, "--rate", "inf", "--backend", "zmq", "--wait-for-readers")
        assert [sub.receive() for _ in range(10)] == [b"%d" % i for i in range(10)]
    assert stats.topics() == []


def test_play_segment_size_sets_size_of_new_topics(prefix: str, tmp_path: Path) -> None:
    run("play", write_numbers(tmp_path / "a.mcap"), "--rate", "inf", "--segment-size", "2MiB")
    assert stats.topic("number").data_bytes == 2 << 20


def test_play_take_over_replaces_live_publisher(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap")
    with msgq.pub_sock("number") as pub:
        answer = "or give take_over (--remap number:=NEW, --prefix NAME, --take-over)"
        assert answer in run("play", path, "--rate", "inf", code=1).stderr
        pub.send(b"mine")
        run("play", path, "--rate", "inf", "--take-over")
        with pytest.raises(MultiplePublishersError):
            pub.send(b"mine")


def test_play_prefix_publishes_under_that_prefix(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    run("play", write_numbers(tmp_path / "a.mcap"), "--rate", "inf", "--prefix", prefix)
    assert stats.topic("number", prefix).messages == 10


def test_play_skips_chunk_above_max_chunk(prefix: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a.mcap", 1000)
    assert "nothing to play" in run("play", path, "--rate", "inf", "--max-chunk-bytes", "1kB", code=1).stderr


def test_play_seed_sets_order_of_simultaneous_events(tmp_path: Path, program: str) -> None:
    log = write_log(tmp_path / "a.mcap", *((name, BEGIN + i, b"1") for i in range(5) for name in ("one", "two")))

    def order(seed: int, name: str) -> list[str]:
        programs = ("--deterministic", f"{program}:ones", "--deterministic", f"{program}:twos")
        run("play", log, *programs, "--seed", seed, "-o", tmp_path / name)
        return [message.endpoint for message in LogReader(tmp_path / name)]

    orders = [order(seed, f"{seed}.mcap") for seed in range(4)]
    assert order(3, "again.mcap") == orders[3]
    assert len({tuple(one) for one in orders}) > 1

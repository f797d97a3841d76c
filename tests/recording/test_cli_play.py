"""`msgq play` and `msgq bag diff`: options, keys, what they print, how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.recording import LogReader
from tests.command import run
from tests.recording.logs import write_log
from tests.recording.test_compare import json_log
from tests.support import DEADLINE, DEADLINE_MS, wait_until

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS
PROGRAM = """
import json, msgq

def halves():
    numbers, out = msgq.sub_sock("number"), msgq.pub_sock("half")
    while True:
        out.send(json.dumps(json.loads(numbers.receive()) / 2).encode())

count = 0

def forgetful():
    global count
    numbers, out = msgq.sub_sock("number"), msgq.pub_sock("half")
    while True:
        count += 1
        numbers.receive()
        out.send(b"%d" % count)
"""


def numbers(path: Path, count: int = 10, period_ns: int = NS // 100, endpoint: str = "number") -> Path:
    return write_log(path, *((endpoint, BEGIN + i * period_ns, b"%d" % i) for i in range(count)))


def test_plays(prefix: str, tmp_path: Path) -> None:
    sub = msgq.sub_sock("new")
    path = numbers(tmp_path / "a.mcap")
    result = run("play", path, "--remap", "number:=new", "--clock", "clock", "--wait-for", "new", "--rate", 2)
    assert "10 messages of 1 endpoints" in result.stdout
    assert msgq.drain_sock_raw(sub) == [b"%d" % i for i in range(10)]
    assert [topic.endpoint for topic in stats.topics()] == ["clock", "new"]


def test_selection(prefix: str, tmp_path: Path) -> None:
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
def test_wrong_usage(tmp_path: Path, options: Any) -> None:
    run("play", numbers(tmp_path / "a.mcap"), *options, code=2)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--endpoint", "x"), "nothing to play"),
        (("--remap", "x:=y"), "cannot be remapped"),
        (("--start", 9), "nothing to play"),
        (("--remap", "number:=a/b"), "a/b"),
    ],
)
def test_errors_are_one_line(prefix: str, tmp_path: Path, options: Any, word: Any) -> None:
    result = run("play", numbers(tmp_path / "a.mcap"), *options, code=1)
    assert word in result.output
    assert result.output.count("\n") == 1


def test_no_log(tmp_path: Path) -> None:
    run("play", tmp_path / "none.mcap", code=1)
    run("play", code=2)


@contextmanager
def playing(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "msgq", "play", *map(str, arguments)]
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_properly_when_told_to(prefix: str, tmp_path: Path, number: Any) -> None:
    path = numbers(tmp_path / "a.mcap", 1000, NS)
    sub = msgq.sub_sock("number", timeout=DEADLINE_MS)
    with playing(path, "--json", stdout=subprocess.PIPE) as process:
        assert sub.receive() == b"0"
        process.send_signal(number)
        output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert json.loads(output.splitlines()[-1])["messages"] == 1
    assert stats.topic("number").publisher is None


def test_keys(prefix: str, tmp_path: Path) -> None:
    path = numbers(tmp_path / "a.mcap", 1000, NS)
    sub = msgq.sub_sock("number", timeout=DEADLINE_MS)
    ours, theirs = pty.openpty()
    terminal = {
        "stdin": theirs,
        "stdout": theirs,
        "stderr": theirs,
        "start_new_session": True,
        "env": {**os.environ, "TERM": "xterm"},
    }
    with playing(path, "--paused", preexec_fn=take_terminal, **terminal) as process:
        os.close(theirs)
        shown = b""
        while b"paused" not in shown:
            shown += os.read(ours, 4096)
        for number, key in enumerate((b"s", b"\x1b[C", b"s")):
            os.write(ours, key)
            assert sub.receive() == b"%d" % number
        os.write(ours, b" ")
        before = time.monotonic()
        assert sub.receive() == b"3"
        assert time.monotonic() - before > 0.5
        os.write(ours, b"q")
        while process.poll() is None:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # it is gone
                break
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    assert b"of 999.0 s" in shown


def take_terminal() -> None:
    """In the child: let the pseudo terminal be its controlling one."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# ---- comparing ----


def test_diff(tmp_path: Path) -> None:
    a = json_log(tmp_path / "a.mcap", {"x": 1.0}, {"x": 2.0})
    b = json_log(tmp_path / "b.mcap", {"x": 1.0}, {"x": 2.001})
    assert "the same: 2 messages" in run("bag", "diff", a, a).stdout
    assert "x: 2.0 at" in run("bag", "diff", a, b, code=1).stdout
    for tolerance in ("state=0.01", "state:x=0.1%", "*=0.0001,1%", "state:x=any"):
        run("bag", "diff", a, b, "-t", tolerance, "--times", 0)
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


def test_deterministic(tmp_path: Path, program: str) -> None:
    log = numbers(tmp_path / "a.mcap")
    assert "the same: 10 messages of 1 endpoints" in run("play", log, "--deterministic", f"{program}:halves").stdout
    result = run("play", log, "--deterministic", f"{program}:forgetful", code=1)
    assert "'half' message 0" in result.stdout


def test_deterministic_against_a_reference(tmp_path: Path, program: str) -> None:
    log = numbers(tmp_path / "a.mcap")
    kept = tmp_path / "kept.mcap"
    arguments = ("play", log, "--deterministic", f"{program}:halves")
    run(*arguments, "-o", kept)
    assert [message.data for message in LogReader(kept)][-1] == b"4.5"
    run(*arguments, "--reference", kept, "--times", 0)
    other = json_log(tmp_path / "other.mcap", *(i / 2 + 0.001 * (i == 7) for i in range(10)), endpoint="half")
    said = json.loads(run(*arguments, "--reference", other, "--json", code=1).stdout)
    assert (said["messages"], said["first"]["endpoint"], said["first"]["index"]) == (10, "half", 7)
    run(*arguments, "--reference", other, "-t", "half=0.01")
    run(*arguments, "--reference", log, code=1)  # there it said nothing
    run(*arguments, "--reference", log, "--outputs", "nothing")


def test_play_is_over_when_all_was_sent(prefix: str, tmp_path: Path) -> None:
    with playing(numbers(tmp_path / "a.mcap"), "--json", stdout=subprocess.PIPE) as process:
        wait_until(lambda: process.poll() is not None)
        assert process.stdout is not None
        assert json.loads(process.stdout.read().splitlines()[-1])["messages"] == 10

"""When a replay is over: programs that wake up again and again do not keep it going."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import msgq
from msgq import errors
from msgq.recording import LogReader, replay
from msgq.simulation import Simulation
from tests.recording.logs import write_log

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS


@pytest.fixture
def log(tmp_path: Path) -> LogReader:
    """Return three messages, the last one after a silence of a minute."""
    times = (0, 1, 61)
    return LogReader(write_log(tmp_path / "a.mcap", *(("number", BEGIN + t * NS, b"%d" % t) for t in times)))


def echo_until_timeout() -> None:
    """Receive with a time-out, as a loop that also looks after something else."""
    numbers, out = msgq.sub_sock("number", timeout=100), msgq.pub_sock("out")
    while True:
        message = numbers.receive()
        if message is not None:
            out.send(message)


def answer_late() -> None:
    """Answer seven seconds later."""
    numbers, out = msgq.sub_sock("number", timeout=100), msgq.pub_sock("out")
    due = []
    while True:
        message = numbers.receive()
        if message is not None:
            due.append((time.monotonic() + 7, message))
        if due and time.monotonic() >= due[0][0]:
            out.send(due.pop(0)[1])


def publish_each_second() -> None:
    """Send each second, for ever."""
    out = msgq.pub_sock("beat")
    while True:
        time.sleep(1)
        out.send(b"beat")


def replay_outputs(log: LogReader, *programs: object, **options: float) -> list[tuple[float, bytes]]:
    return [((m.time_ns - BEGIN) / NS, m.data) for m in replay(log, *programs, **options)]  # type: ignore[arg-type]


def test_replay_ends_for_program_with_receive_timeout(log: LogReader) -> None:
    assert replay_outputs(log, echo_until_timeout) == [(0, b"0"), (1, b"1"), (61, b"61")]
    assert replay_outputs(log, echo_until_timeout) == replay_outputs(log, echo_until_timeout, idle_timeout=0)


def test_replay_waits_idle_timeout_for_late_messages(log: LogReader) -> None:
    found = replay_outputs(log, answer_late)
    assert [data for _, data in found] == [b"0", b"1", b"61"]
    assert found[-1][0] == pytest.approx(68, abs=0.2)
    assert [data for _, data in replay_outputs(log, answer_late, idle_timeout=5)] == [b"0", b"1"]
    assert len(replay_outputs(log, answer_late, idle_timeout=100, max_runtime=6)) == 2


def test_replay_ends_for_endless_sender(log: LogReader, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(replay_outputs(log, echo_until_timeout)) == 3
    assert not caplog.text
    with caplog.at_level(logging.WARNING):
        assert [t for t, data in replay_outputs(log, publish_each_second, max_runtime=20)] == list(range(1, 82))
    assert "the run ended 20 s after the last recorded message" in caplog.text


@pytest.mark.parametrize("times", [{"idle_timeout": -1.0}, {"max_runtime": -1.0}, {"idle_timeout": float("nan")}])
def test_replay_with_impossible_times_is_refused(log: LogReader, times: dict[str, float]) -> None:
    with pytest.raises(errors.InvalidValueError, match="is negative; use 0 or more"):
        replay_outputs(log, echo_until_timeout, **times)


def test_replay_without_time_limit_ends_with_programs() -> None:
    def twice() -> None:
        out = msgq.pub_sock("out")
        for _ in range(2):
            time.sleep(1000)
            out.send(b"x")

    with Simulation() as sim, sim.clock.patch_time():
        sim.add(twice)
        assert sim.run_until_idle(float("inf"), float("inf"))
        assert sim.clock.time() == pytest.approx(2000)
        assert len(sim.sent_messages) == 2

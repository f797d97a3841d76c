"""Programs on a log of all kinds, in virtual time: the same outputs each time, in each process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.recording import LogReader, Player, compare, playback_messages, replay
from msgq.recording.player.replay import write_sent_messages
from msgq.simulation import Faults, Simulation
from tests.command import run
from tests.recording.all_kinds import BEGIN, MS, Log, fill_with_frames, write
from tests.recording.all_kinds_program import OUTPUTS, all_kinds, frames
from tests.support import DEADLINE
from visionipc.image_messages import picture

MODULE = "tests.recording.all_kinds_program"
PROGRAMS = ["--deterministic", f"{MODULE}:all_kinds", "--deterministic", f"{MODULE}:frames"]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "all.mcap", fill_with_frames)


def in_a_process(path: Path, output: Path, seed: int, faults: float, hash_seed: int) -> Path:
    """Replay in another process, whose hashes of text are others."""
    command = [sys.executable, "-m", "tests.recording.all_kinds_program", path, output, seed, faults]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    subprocess.run([*map(str, command)], check=True, env=env, cwd=ROOT, timeout=DEADLINE)
    return output


def test_replay_program_uses_all_kinds(path: Path) -> None:
    sent = replay(LogReader(path), all_kinds, frames)
    counts = Counter(message.endpoint for message in sent)
    assert counts == {name: 20 if name == "records/best" else 10 for name in OUTPUTS}
    assert {message.node for message in sent} == {"all_kinds", "frames"}
    by = {message.endpoint: message for message in sent}
    assert {name: by[name].kind for name in OUTPUTS} == dict(
        zip(OUTPUTS, ["channel", "queue", "records", "records", "topic", "frames"], strict=True)
    )
    assert (by["channel/out"].publisher, by["records/said"].key, by["queue/done"].priority) == (
        "all_kinds",
        "newest",
        0,
    )
    assert json.loads(by["records/said"].data) == {"pose": "9"}
    negatives = [picture(message.data) for message in sent if message.endpoint == "visionipc_dark_0/image"]
    assert [(one.frame_id, bytes(one.data)[0]) for one in negatives] == [(i, 255 - i) for i in range(10)]


@pytest.mark.parametrize("faults", [None, Faults(drop=0.2, delay=0.3, reorder=0.3, restart=0.1)])
@pytest.mark.parametrize("seed", [0, 5])
def test_replay_of_all_kinds_twice_gives_same_log(path: Path, faults: Any, seed: int) -> None:
    first, second = (replay(LogReader(path), all_kinds, frames, seed=seed, faults=faults) for _ in range(2))
    assert first == second
    assert set(OUTPUTS) == {message.endpoint for message in first}
    assert compare(first, second)


def test_replay_faults_depend_on_seed(path: Path) -> None:
    runs = [replay(LogReader(path), all_kinds, frames, seed=seed, faults=Faults(drop=0.3)) for seed in range(2)]
    assert runs[0] != runs[1]


@pytest.mark.ci
@pytest.mark.parametrize("faults", [0.0, 0.2])
def test_replay_in_two_processes_writes_same_log(path: Path, tmp_path: Path, faults: float) -> None:
    logs = [in_a_process(path, tmp_path / f"{number}.mcap", 3, faults, number + 1) for number in range(2)]
    assert compare(logs[0], logs[1], time_tolerance=0)
    assert list(LogReader(logs[0])) == list(LogReader(logs[1]))
    assert "the same" in run("bag", "diff", *logs).stdout


def test_replay_output_can_be_played(path: Path, tmp_path: Path, prefix: str) -> None:
    sent = replay(LogReader(path), all_kinds, frames)
    write_sent_messages(sent, tmp_path / "sent.mcap")
    log = LogReader(tmp_path / "sent.mcap")
    assert {name: info.kind for name, info in log.endpoints.items()} == {
        "channel/out": "channel",
        "queue/done": "queue",
        "records/best": "records",
        "records/said": "records",
        "topic-out": "topic",
        "visionipc_dark_0/image": "frames",
    }
    assert compare(sent, log)
    with Player(log, rate=float("inf")) as player:
        assert player.skipped == {}
        assert player.run().messages == len(sent)
    with msgq.SeqlockVector("best") as best, msgq.MessageQueue("done", 0) as done:
        assert best[0].tolist() == (9.5, 9.0)
        assert sorted(message.data for message in done.receive_many()) == [b"JOB %d" % i for i in range(10)]


def test_replay_command_runs_program_twice(path: Path) -> None:
    result = run("play", path, *PROGRAMS, "--json")
    assert json.loads(result.stdout)["messages"] == 70


def test_replay_command_compares_all_kinds_with_reference(path: Path, tmp_path: Path) -> None:
    run("play", path, *PROGRAMS, "-o", tmp_path / "out.mcap")
    run("play", path, *PROGRAMS, "--reference", tmp_path / "out.mcap")
    exclude = ["-x", "queue/jobs"]
    other = run("play", path, *exclude, *PROGRAMS, "--reference", tmp_path / "out.mcap", code=1)
    assert "queue/done" in other.stdout


def test_replay_creates_recorded_endpoints_for_programs(path: Path) -> None:
    found: dict[str, Any] = {}

    def program() -> None:
        quotes, state, jobs = msgq.SeqlockVector("quotes"), msgq.Board("state"), msgq.MessageQueue("jobs")
        found["vector"] = len(quotes), quotes.dtype.names
        found["board"] = state.capacity, state.value_bytes
        found["queue"] = jobs.max_messages, jobs.max_message_size
        found["channel"] = msgq.Channel("lidar").capacity

        found["events"] = jobs.events

    assert not [sent for sent in replay(LogReader(path), program) if sent.endpoint.startswith("channel/jobs")]
    assert found.pop("events") == "payload"
    expected = {"vector": (8, ("bid", "ask")), "board": (4, 64), "queue": (32, 128), "channel": 16}
    assert found == expected


def test_replay_sets_initial_record_values(path: Path) -> None:
    seen: list[Any] = []

    def program() -> None:
        quotes, state = msgq.SeqlockVector("quotes"), msgq.Board("state")
        topic = msgq.sub_sock("topic")
        while True:
            topic.receive()
            seen.append((quotes.read()[:4]["ask"].tolist(), dict(state.items())))

    replay(LogReader(path, start=BEGIN + 500 * MS), program)
    assert seen[0] == ([4.0, 1.0, 2.0, 3.0], {"mode": b"4", "pose": b"3"})
    assert len(seen) == 5


def test_replay_keeps_publishers_and_origins(tmp_path: Path) -> None:
    def fill(log: Log) -> None:
        log.channel(0, b"a", "front", age_ns=30 * MS)
        log.channel(10, b"b", "rear")
        log.topic(20, b"c", age_ns=40 * MS)

    seen: list[Any] = []

    def program() -> None:
        lidar, topic = msgq.Channel("lidar").subscriber(), msgq.sub_sock("topic")
        for _ in range(2):
            with lidar.receive_view() as view:
                seen.append((view.publisher.name, bytes(view), view.publish_time - view.origin_time))
        message: Any = topic.receive_tracked()
        seen.append((message.data, message.publish_time - message.origin_time))

    replay(LogReader(write(tmp_path / "log.mcap", fill)), program)
    assert seen[0] == ("front", b"a", 30 * MS)
    assert seen[1][:2] == ("rear", b"b")
    assert seen[2] == (b"c", 40 * MS)


def test_replay_reports_unplayable_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1")
        log.queue(1, b"job", payload=False)
        log.topic(2, b"1", "/..")

    def program() -> None:
        topic, out = msgq.sub_sock("topic"), msgq.pub_sock("out")
        while True:
            out.send(topic.receive() or b"")

    with caplog.at_level(logging.WARNING):
        assert len(replay(LogReader(write(tmp_path / "log.mcap", fill)), program)) == 1
    assert "queue/jobs" in caplog.text
    assert "/.." in caplog.text


def test_simulation_plays_selected_messages_of_log(path: Path) -> None:
    """With what the log says of publishers and keys, a part of it can be left out."""
    with Simulation() as sim:
        sim.play(message for message in playback_messages(LogReader(path)) if message.source.publisher != "rear")
        sim.run()
        assert {m.publisher for m in sim.sent_messages if m.endpoint == "channel/lidar"} == {"front"}
        assert len(sim.sent_messages) == 55
        assert {m.key for m in sim.sent_messages if m.endpoint == "records/state"} == {"mode", "pose"}
        recorded = [m for m in LogReader(path) if m.endpoint == "records/quotes"]
        assert sim.sent_on("records/quotes") == [m.data for m in recorded]
        assert [m.schema for m in sim.sent_messages if m.endpoint == "records/quotes"] == [m.schema for m in recorded]


def test_comparison_reports_different_keys_and_priorities(tmp_path: Path) -> None:
    def fill(key: str, priority: int) -> Any:
        return lambda log: (log.board(0, key, b"1"), log.queue(1, b"job", priority))

    first, same, keyed, urgent = (
        LogReader(write(tmp_path / f"{number}.mcap", fill(*what)))
        for number, what in enumerate([("a", 1), ("a", 1), ("b", 1), ("a", 2)])
    )
    assert compare(first, same)
    found = compare(first, keyed).first
    assert found is not None
    assert (found.endpoint, found.field, found.a, found.b) == ("records/state", ".key", "a", "b")
    found = compare(first, urgent).first
    assert found is not None
    assert (found.endpoint, found.field, found.a, found.b) == ("queue/jobs", ".priority", 1, 2)


def test_compare_shows_different_payloads_of_queues_without_their_event_schema(tmp_path: Path) -> None:
    a = write(tmp_path / "a.mcap", lambda log: log.queue(0, b"a"))
    b = write(tmp_path / "b.mcap", lambda log: log.queue(0, b"b"))
    found = compare(a, b).first
    assert found is not None
    assert (found.field, found.a, found.b) == ("", b"a", b"b")

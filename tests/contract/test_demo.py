"""The demo as its user runs it: a real process with real children, whole, interrupted, and killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from msgq.cli.demo.control_loop import STEP_DTYPE
from msgq.cli.demo.plan import (
    DEMO_SUBSCRIBERS,
    DEMO_TOPICS,
    OTHER_KIND_TOPICS,
    PICTURE_BYTES,
    SHORT_PLAN,
    STREAM_TYPE,
    DemoPlan,
)
from msgq.common.timing import TIMING_FIELDS, parse_timing_topic
from msgq.recording import LogReader
from msgq.stats import channels, queues, records, topics
from tests.support import SHM, wait_until

DEADLINE_S = 120

KINDS = {"topic", "frames", "channel", "records", "queue"}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Start the full or the short demo for so many seconds, without a terminal; on a backend, if not on the ring."""
    started = []

    def start(duration: float, backend: str = "msgq", *options: str, full: bool = True) -> subprocess.Popen[str]:
        options = ("--full", *options) if full else options
        command = [sys.executable, "-m", "msgq", "demo", "--json", "--duration", str(duration), *options]
        env = {**os.environ, "MSGQ_BACKEND": backend, "TMPDIR": str(tmp_path)}  # one that is killed leaves files there
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def summary_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a demo; it must have ended well and printed one object and nothing else."""
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert errors == ""
    summary: dict[str, Any] = json.loads(output)
    assert summary["failures"] == []
    assert process.returncode == 0
    return summary


def leftovers(prefix: str) -> list[str]:
    """Files of this prefix: of the ring, of frames, and of ZMQ (sockets by their names, claims by their texts)."""
    claims = (path for path in SHM.glob("msgqzmq_*/claims/*") if prefix in text_of(path))
    frames = Path("/tmp").glob(f"{prefix}_visionipc_*")
    return sorted(map(str, (*SHM.glob(f"msgq*_{prefix}/*"), *frames, *SHM.glob(f"msgqzmq_*/ipc/*{prefix}*"), *claims)))


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # somebody else's, gone by now
        return ""


def all_topics_have_messages(prefix: str) -> bool:
    """Whether everything that the demo publishes has messages."""
    append_imported_messages = {topic.endpoint.rpartition("-")[2] for topic in topics(prefix) if topic.messages}
    append_imported_messages |= {one.node for channel in channels(prefix) for one in channel.publishers if one.sent}
    append_imported_messages |= {one.name.rpartition("-")[2] for one in records(prefix) if one.written}
    append_imported_messages |= {queue.name.rpartition("-")[2] for queue in queues(prefix) if queue.sent}
    return {
        f"{name}_{STREAM_TYPE}" if topic.is_frame_stream else name for name, topic in DEMO_TOPICS.items()
    } <= append_imported_messages


def test_demo_summary_accounts_for_all_published_messages(prefix: str, start: Start, tmp_path: Path) -> None:
    summary = summary_of(start(4, "msgq", "--output", str(tmp_path / "recording")))
    assert summary["ok"]
    assert not summary["interrupted"]
    published = {topic["topic"]: topic for topic in summary["topics"]}
    assert published.keys() == DEMO_TOPICS.keys()
    for one in summary["subscribers"]:
        assert one["received"] > 0
        if one["kind"] != "worker":
            assert one["received"] + one["lost"] == published[one["topic"]]["messages"]
        assert 0 < one["overall"]["p50_us"] <= one["overall"]["p99_us"]
    assert {(one["subscriber"], one["topic"]) for one in summary["subscribers"]} == {
        (subscriber.name, topic) for subscriber in DEMO_SUBSCRIBERS.values() for topic in subscriber.topics
    }
    assert leftovers(prefix) == []
    check_restarts(summary)
    check_work(summary)
    check_loop(LogReader(tmp_path / "recording"))
    check_replay(summary)


def check_replay(summary: dict[str, Any]) -> None:
    """What was recorded went into programs of all kinds, and came out on all of them."""
    (note,) = summary["notes"]
    found = re.fullmatch(r"replayed twice in virtual time: (.*) led to the same (.*)", note)
    assert found is not None, note
    for said, endpoints, expected in zip(found.groups(), (5, 6), (KINDS, KINDS - {"frames"}), strict=True):
        counts = {kind: int(number.replace(",", "")) for kind, number in re.findall(r"(\w+) ([\d,]*\d)[,)]", said)}
        assert counts.keys() == expected
        assert said.startswith(f"{sum(counts.values()):,} messages of {endpoints} endpoints (")
        assert all(counts.values())


def check_loop(log: LogReader) -> None:
    """Each command follows from an estimate, and that from a message of the sensor, which all have its time."""
    times: dict[str, dict[int, int]] = {"sensor": {}, "estimate": {}, "command": {}}
    published = last = 0
    stages: dict[str, list[int]] = {"estimate": [], "command": []}
    for message in log:
        name = message.endpoint.rpartition("-")[2]
        if found := parse_timing_topic(message.endpoint):
            stages[found[0]].append(int(np.frombuffer(message.data, "<i8")[TIMING_FIELDS.index("origin_time")]))
        elif name in times:
            ((published, origin, *_),) = np.frombuffer(message.data, STEP_DTYPE).tolist()
            times[name][origin], last = published, message.publish_time
    assert last == published, "the recorder knows what the fields are"
    assert all(origin == published for origin, published in times["sensor"].items())
    assert times["sensor"].keys() >= times["estimate"].keys() >= times["command"].keys()
    assert len(times["command"]) > 50
    for name, said in stages.items():  # of all that it answered since the recorder noticed that it says so
        assert len(said) > 10
        assert said == list(times[name])[-len(said) :]
    for origin, published in times["command"].items():
        assert origin <= times["estimate"][origin] <= published


def check_work(summary: dict[str, Any]) -> None:
    """Of three workers one was killed at work; all that it left was done by others, and nothing twice by them."""
    work = summary["work"]
    done = {one["subscriber"]: one["received"] for one in summary["subscribers"] if one["kind"] == "worker"}
    assert [killed["name"] for killed in work["killed_workers"]] == ["worker-2"]
    assert work["sent_jobs"] == work["acknowledged_jobs"] >= sum(done.values())
    assert work["returned_jobs"] >= 1
    assert (work["pending_jobs"], work["unfinished_jobs"]) == (0, 0)


def check_restarts(summary: dict[str, Any]) -> None:
    """A restart loses nothing, and a slow subscriber counts what it lost."""
    assert {restart["subscriber"] for restart in summary["restarts"]} == {"survivor", "observer"}
    for restart in summary["restarts"]:
        assert restart["lost"] == 0
        assert restart["killed_pid"] != restart["pid"]
    lost = {one["subscriber"]: one["lost"] for one in summary["subscribers"]}
    assert lost["survivor"] == lost["observer"] == 0
    assert lost["slow"] > 0
    assert lost["display"] > 0


@pytest.mark.nightly
def test_demo_summary_shows_frames_next_to_topics(prefix: str, start: Start) -> None:
    summary = summary_of(start(2))
    assert summary["ok"], summary["failures"]
    assert [note.partition(":")[0] for note in summary["notes"]] == ["replayed twice in virtual time"]
    assert {one["topic"] for one in summary["recording"]} == {*DEMO_TOPICS} - {"load"} | {
        "load, pictures",
        "estimate handles sensor",
        "command handles estimate",
    }
    (viewer,) = [one for one in summary["subscribers"] if one["kind"] == "frames"]
    assert viewer["topic"] == "load"
    assert viewer["bytes"] == viewer["received"] * PICTURE_BYTES
    (load,) = [topic for topic in summary["topics"] if topic["topic"] == "load"]
    assert load["bytes"] == load["messages"] * PICTURE_BYTES


def test_ctrl_c_during_short_demo_leaves_only_recording_that_it_names(
    prefix: str, start: Start, tmp_path: Path
) -> None:
    process = start(600, full=False)
    wait_until(lambda: has_flowing_topics(prefix, SHORT_PLAN), "every topic flows", DEADLINE_S, interval=0.1)
    process.send_signal(signal.SIGINT)
    summary = summary_of(process)
    assert summary["interrupted"]
    assert {topic["topic"] for topic in summary["topics"]} == SHORT_PLAN.topics.keys()
    assert [str(path) for path in tmp_path.iterdir()] == [summary["recording_path"]]
    recorded = {name.rpartition("-")[2] for name in LogReader(summary["recording_path"]).endpoints}
    assert recorded == SHORT_PLAN.topics.keys()
    assert leftovers(prefix) == []


def has_flowing_topics(prefix: str, demo_plan: DemoPlan) -> bool:
    flowing = {topic.endpoint.rpartition("-")[2] for topic in topics(prefix) if topic.messages}
    return flowing >= demo_plan.topics.keys()


def test_ctrl_c_during_demo_prints_summary_and_leaves_no_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: all_topics_have_messages(prefix), "every topic flows", DEADLINE_S, interval=0.1)
    process.send_signal(signal.SIGINT)
    summary = summary_of(process)
    assert summary["interrupted"]
    assert all(topic["messages"] for topic in summary["topics"])
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_ctrl_c_during_demo_start_leaves_no_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: bool(leftovers(prefix)), "the first segment exists", DEADLINE_S)
    process.send_signal(signal.SIGINT)
    assert summary_of(process)["interrupted"]
    assert leftovers(prefix) == []


def test_children_of_killed_demo_exit_and_remove_their_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: all_topics_have_messages(prefix), "every topic flows", DEADLINE_S, interval=0.1)
    children = psutil.Process(process.pid).children()
    assert len(children) == len(DEMO_TOPICS) + len(DEMO_SUBSCRIBERS)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_two_concurrent_demos_do_not_interfere(prefix: str, start: Start) -> None:
    for summary in [summary_of(process) for process in (start(2), start(2))]:
        assert summary["ok"]
    assert leftovers(prefix) == []


def zmq_endpoints(prefix: str) -> list[str]:
    """The socket files that publishers of a demo over ZMQ have bound."""
    return [path.name for path in SHM.glob(f"msgqzmq_*/ipc/*{prefix}*")]


def all_publishers_are_bound(prefix: str) -> bool:
    """Whether every publisher is there, those of the subscribers' reports included (there is no passive one)."""
    on_zmq = [topic for topic in DEMO_TOPICS.values() if topic.kind == "topic"]
    reporting = [
        one
        for one in DEMO_SUBSCRIBERS.values()
        if all(DEMO_TOPICS[name] not in OTHER_KIND_TOPICS for name in one.topics)
    ]
    return len(zmq_endpoints(prefix)) >= len(on_zmq) + len(reporting) - 1


@pytest.mark.nightly
def test_demo_over_zmq_runs_all_topics_and_reports_unknown_counts(prefix: str, start: Start) -> None:
    summary = summary_of(start(2, "zmq"))
    assert (summary["ok"], summary["backend"]) == (True, "zmq")
    carried = {name for name, topic in DEMO_TOPICS.items() if topic not in OTHER_KIND_TOPICS}
    assert {(topic["topic"], topic["messages"]) for topic in summary["topics"]} == {(name, None) for name in carried}
    assert summary["notes"] == ["without channel, vector and queue: ZMQ has only topics"]
    lost = {one["subscriber"]: one["lost"] for one in summary["subscribers"]}
    assert all(one["received"] > 0 for one in summary["subscribers"])
    assert lost.keys() == {one.name for one in DEMO_SUBSCRIBERS.values() if carried.issuperset(one.topics)} - {
        "observer"
    }
    assert lost.pop("display") > 0  # what it passed over itself it does know
    assert lost.pop("viewer") is not None  # frames are announced on the ring
    assert set(lost.values()) == {None}
    (restart,) = summary["restarts"]
    assert (restart["subscriber"], restart["lost"]) == ("survivor", None)
    assert restart["killed_pid"] != restart["pid"]
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_ctrl_c_ends_a_demo_over_zmq(prefix: str, start: Start) -> None:
    process = start(600, "zmq")
    wait_until(lambda: all_publishers_are_bound(prefix), "everybody publishes", DEADLINE_S)
    process.send_signal(signal.SIGINT)
    assert summary_of(process)["interrupted"]
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_children_of_killed_zmq_demo_exit_and_remove_their_files(prefix: str, start: Start) -> None:
    process = start(600, "zmq")
    wait_until(lambda: all_publishers_are_bound(prefix), "everybody publishes", DEADLINE_S)
    children = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert leftovers(prefix) == []


def test_demo_in_virtual_time_has_exact_duration_and_losses(prefix: str, start: Start) -> None:
    summary = summary_of(start(3, "fake"))
    assert (summary["ok"], summary["backend"], summary["duration_s"]) == (True, "fake", 3.0)
    assert len(summary["digest"]) == 64
    assert summary["seed"] is not None
    lost = {one["subscriber"]: one["lost"] for one in summary["subscribers"]}
    assert lost.keys() == DEMO_SUBSCRIBERS.keys() - {"viewer"}
    assert summary["notes"] == ["without a frame stream: visionipc has no virtual time"]
    assert lost["slow"] > 0
    assert lost["survivor"] == lost["observer"] == lost["dashboard"] == 0
    assert {(one["subscriber"], one["lost"]) for one in summary["restarts"]} == {("survivor", 0), ("observer", 0)}
    assert leftovers(prefix) == []


def test_ctrl_c_ends_a_demo_in_virtual_time(prefix: str, start: Start) -> None:
    process = start(600, "fake")
    wait_until(lambda: handles(process.pid, signal.SIGTERM), "it is prepared for signals", DEADLINE_S)
    process.send_signal(signal.SIGINT)
    summary = summary_of(process)
    assert (summary["interrupted"], summary["digest"]) == (True, None)


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (caught,) = re.findall(r"SigCgt:\s(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)

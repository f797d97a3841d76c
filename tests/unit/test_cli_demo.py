"""The parts of the demo that need no processes: what its checks must notice, its replay, and the moving picture."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq_demo import replaying
from msgq_demo.picture import LoadPicture
from msgq_demo.results import Flow, Recorded, Results, Work, find_failures
from msgq_demo.roles import KILLED_WORKER, PUBLISHERS, SUBSCRIBERS, WORKERS
from tests.command import run
from tests.recording.logs import write_log
from visionipc import FrameFormat
from visionipc.formats import geometry

# ---- checks ----


def make_results(**changes: Any) -> Results:
    """Results of a run of 100 messages per endpoint, in which nothing was lost."""
    endpoints = dict.fromkeys(role.endpoint for role in PUBLISHERS.values())
    flows = [Flow(name, "pulse", 100, 0, 10.0, 20.0) for name in SUBSCRIBERS if name != KILLED_WORKER]
    results = Results(
        published=dict.fromkeys(endpoints, 100),
        flows=flows,
        work=Work(sent=100, acknowledged=100, returned=1, unfinished=0, killed_pid=7),
        recording=[Recorded(endpoint, 100, 100, 0) for endpoint in endpoints],
        recording_path="/tmp/recording",
    )
    return replace(results, **changes)


def failures_of_flow(subscriber: str, endpoint: str, received: int, lost: int, **changes: Any) -> list[str]:
    flow = Flow(subscriber, endpoint, received, lost, 10.0, 20.0)
    return list(find_failures(make_results(flows=[flow], **changes)))


def failures_of_recording(endpoint: str, **changes: Any) -> list[str]:
    recording = [replace(one, **changes) if one.endpoint == endpoint else one for one in make_results().recording]
    return list(find_failures(make_results(recording=recording)))


def test_demo_run_without_faults_has_no_failures() -> None:
    assert list(find_failures(make_results())) == []


def test_demo_allows_counted_losses_only_of_slow_subscribers() -> None:
    assert failures_of_flow("slow", "busy", 60, 40) == []
    assert failures_of_flow("survivor", "pulse", 99, 1) == ["survivor of pulse lost 1"]


@pytest.mark.parametrize("received", [59, 61])
def test_demo_fails_if_received_and_lost_messages_are_not_the_published_ones(received: int) -> None:
    text = f"slow of busy: received {received} + lost 40 differs from published 100"
    assert failures_of_flow("slow", "busy", received, 40) == [text]


def test_demo_fails_if_subscriber_received_nothing_unless_interrupted() -> None:
    assert failures_of_flow("slow", "busy", 0, 100) == ["slow of busy received nothing"]
    assert failures_of_flow("slow", "busy", 0, 100, interrupted=True) == []


def test_demo_worker_may_receive_a_part_of_the_jobs() -> None:
    assert failures_of_flow(next(iter(WORKERS)), "queue/jobs", 1, 0) == []


def test_demo_fails_if_recording_lacks_messages() -> None:
    assert failures_of_recording("cpu", published=99) == ["cpu: 99 of 100 messages in the recording"]
    assert failures_of_recording("cpu", lost=1) == ["cpu: the recording lacks 1 messages"]
    assert failures_of_recording("busy", lost=1) == []
    missing = list(find_failures(make_results(recording=make_results().recording[1:])))
    assert missing == ["cpu: 0 of 100 messages in the recording"]


def test_demo_without_recording_has_only_failures_of_its_processes() -> None:
    assert list(find_failures(make_results(recording=[], recording_path=None))) == []


@pytest.mark.parametrize("changes", [{"acknowledged": 99}, {"unfinished": 1}, {"returned": 0}, {"killed_pid": None}])
def test_demo_fails_unless_killed_worker_leaves_its_job_to_others(changes: dict[str, Any]) -> None:
    results = make_results()
    assert results.work is not None
    results.work = replace(results.work, **changes)
    assert len(list(find_failures(results))) == 1
    results.interrupted = True
    assert list(find_failures(results)) == []


# ---- replay ----


def test_demo_describes_its_replays_only_if_they_sent_the_same_messages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    numbers = count()

    def send_next_number() -> None:
        sizes = msgq.pub_sock("sizes")
        for _ in msgq.sub_sock("cpu"):
            sizes.send(bytes([next(numbers)]))

    log = write_log(tmp_path / "log.mcap", ("cpu", 1, b"a"), ("cpu", 2, b"bc"))
    assert replaying.replay_twice(log) == "2 messages of cpu led to the same 2 messages"
    monkeypatch.setitem(replaying._PROGRAMS, "cpu", send_next_number)
    assert replaying.replay_twice(log) == ""


# ---- command ----


def test_demo_prints_failures_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    results = make_results(failures=["slow failed"])
    monkeypatch.setattr("msgq_demo.run.run_demo", lambda *_: results)
    result = run("demo", code=1)
    assert "FAILED slow failed" in result.output
    assert "some checks failed" in result.output


@pytest.mark.parametrize("backend", ["zmq", "fake"])
def test_demo_refuses_other_backend(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("MSGQ_BACKEND", backend)
    assert f"MSGQ_BACKEND is {backend}, but the demo needs shared memory" in run("demo", code=2).output


# ---- picture ----

WIDTH, HEIGHT = 64, 40
STEP = 8


def planes_of(picture: LoadPicture) -> tuple[np.ndarray, np.ndarray]:
    layout = geometry(FrameFormat.NV12, WIDTH, HEIGHT)
    luma, chroma = layout.planes(memoryview(bytearray(layout.size)))
    picture.copy_planes(luma, chroma)
    return luma, chroma


def picture_of_constant_load(*percent: float) -> LoadPicture:
    picture = LoadPicture(WIDTH, HEIGHT)
    picture.append_column(percent)
    return picture


def test_demo_picture_bar_height_equals_core_load() -> None:
    luma, _ = planes_of(picture_of_constant_load(50.0))
    newest = luma[:, -1]
    assert (newest[: HEIGHT // 2 - 1] == 16).all()
    assert (newest[HEIGHT // 2 + 1 :] > 90).all()


def test_demo_picture_has_one_band_per_core() -> None:
    luma, _ = planes_of(picture_of_constant_load(0.0, 100.0))
    assert (luma[: HEIGHT // 2, -1] == 16).sum() >= HEIGHT // 2 - 1
    assert (luma[HEIGHT // 2 :, -1] > 100).all()


def test_demo_picture_shows_busy_core_red_and_idle_core_blue() -> None:
    _, busy = planes_of(picture_of_constant_load(100.0))
    _, idle = planes_of(picture_of_constant_load(10.0))
    (blue, red), (cold_blue, cold_red) = busy[-1, -1], idle[-1, -1]
    assert red > 128 > blue
    assert cold_red < 128 < cold_blue


def test_demo_picture_moves_left() -> None:
    picture = picture_of_constant_load(0.0)
    before, colours_before = planes_of(picture)
    for load in (100.0, 100.0):
        picture.append_column([load])
    after, colours = planes_of(picture)
    assert (after[:, : -2 * STEP] == before[:, 2 * STEP :]).all()
    assert (colours[:, :-STEP] == colours_before[:, STEP:]).all()
    assert (after[:, -2 * STEP :] != before[:, -2 * STEP :]).any()


def test_demo_picture_accepts_change_of_core_count() -> None:
    picture = picture_of_constant_load(100.0, 100.0)
    picture.append_column([100.0])
    luma, _ = planes_of(picture)
    assert (luma[:, -1] > 100).all()

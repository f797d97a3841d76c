"""Recordings of stages contain samples of the threads that take part."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgq_blobs.names import KIND, blob_path
from msgq_blobs.stats import append

import msgq
from msgq import kinds
from msgq.common.busy_processes import BusyProcesses
from msgq.common.thread_sampler import ThreadSampler
from msgq.common.thread_samples import (
    PARTICIPANTS_ENDPOINT,
    SAMPLES_ENDPOINT,
    SAMPLES_SCHEMA,
    ThreadSample,
    encode_sample,
)
from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.impl.base import clock
from msgq.kinds.stats import EndpointRow, KindStats
from msgq.recording import LogReader, Recorder
from msgq.recording.recorder import thread_observer
from tests.support import wait_until
from tests.unit.stage_children import timing_publisher, timing_record

ME = (os.getpid(), threading.get_native_id())


def count_samples(log: Path) -> int:
    return sum(message.endpoint == SAMPLES_ENDPOINT for message in LogReader(log))


def read_samples(log: Path) -> list[Any]:
    messages = (message.data for message in LogReader(log) if message.endpoint == SAMPLES_ENDPOINT)
    return [np.frombuffer(message, SAMPLES_SCHEMA.dtype)[0] for message in messages]


def test_recording_of_stage_has_samples_and_participants(prefix: str, tmp_path: Path) -> None:
    with timing_publisher("planner", "quotes") as stage:
        with Recorder(tmp_path / "log") as recorder:
            stage.send(timing_record(5, 6, 7, 4))
            wait_until(lambda: recorder.stats().messages > 10)  # a sample, because this thread runs
        assert recorder.stats().refused == {}
    log = LogReader(tmp_path / "log")
    participants = [json.loads(message.data) for message in log if message.endpoint == PARTICIPANTS_ENDPOINT]
    samples = read_samples(tmp_path / "log")
    me = [each for each in participants if (each["pid"], each["thread_id"]) == ME]
    assert {(each["endpoint"], each["role"], each["problem"]) for each in me} == {
        ("timing:planner:quotes", "publisher", "")
    }
    mine = [sample for sample in samples if (sample["pid"], sample["thread_id"]) == ME]
    assert sum(sample["ran_ns"] for sample in mine) > 0
    assert all(sample["begin_time"] < sample["publish_time"] for sample in samples)
    assert all(mine[at]["publish_time"] == mine[at + 1]["begin_time"] for at in range(len(mine) - 1))
    ours = [sample for sample in samples if sample["waited_ns"] >= 0]  # others are processes that keep the machine busy
    assert {sample["pid"] for sample in ours} == {ME[0]}
    assert {sample["thread_id"] for sample in ours} > {ME[1]}  # with those of the recorder


def test_recording_without_stage_has_no_samples(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = threading.Event()

    def watch(self: ThreadSampler, participants: object, now_ns: int) -> list[object]:
        assert participants == []
        watched.set()
        return []

    monkeypatch.setattr(ThreadSampler, "watch", watch)
    with msgq.pub_sock("plans") as plans, Recorder(tmp_path / "log") as recorder:
        plans.send(b"one")
        assert watched.wait(60)
        wait_until(lambda: recorder.stats().messages == 1)
    assert LogReader(tmp_path / "log").endpoints.keys() == {"plans"}
    assert recorder.stats().refused == {}


def test_busy_process_without_endpoint_has_samples_while_others_wait(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = ThreadSample(2, 1, 1, -1, 4711, 4711, 0, "", "compiler", "")
    excluded: list[object] = []

    def take_samples(_self: BusyProcesses, _now_ns: int, pids: object) -> list[ThreadSample]:
        excluded.append(pids)
        return [outside]

    monkeypatch.setattr(BusyProcesses, "take_samples", take_samples)
    monkeypatch.setattr(thread_observer, "_SCAN_WAIT_MIN_NS", 0)
    with timing_publisher("planner", "quotes"), Recorder(tmp_path / "log"):
        wait_until(lambda: excluded[1:])
    assert {ME[0]} in excluded
    samples = [message.data for message in LogReader(tmp_path / "log") if message.endpoint == SAMPLES_ENDPOINT]
    assert samples.count(encode_sample(outside)) == len(excluded)


def test_paused_recorder_takes_no_samples(prefix: str, tmp_path: Path) -> None:
    with timing_publisher("planner", "quotes"):
        with Recorder(tmp_path / "log", start_paused=True) as recorder:
            recorder.resume()
            wait_until(lambda: recorder.stats().messages > 10)
            recorder.pause()
        resumed = count_samples(tmp_path / "log")
        with Recorder(tmp_path / "paused", start_paused=True):
            pass
    assert resumed > 0
    assert LogReader(tmp_path / "paused").endpoints.keys() == set()


def test_no_sample_contains_a_pause(prefix: str, tmp_path: Path) -> None:
    def has_recorded(recorder: Recorder, count: int) -> bool:
        sum(range(10_000))  # this thread runs
        return recorder.stats().messages >= count

    with timing_publisher("planner", "quotes"), Recorder(tmp_path / "log") as recorder:
        wait_until(lambda: has_recorded(recorder, 10))
        recorder.pause()
        began_ns, count = clock.time_ns(), recorder.stats().messages
        wait_until(lambda: clock.time_ns() - began_ns > NS_PER_S // 2)
        resumed_ns = clock.time_ns()
        recorder.resume()
        wait_until(lambda: has_recorded(recorder, count + 10) and clock.time_ns() - resumed_ns > NS_PER_S // 2)
        count = recorder.stats().messages
        wait_until(lambda: has_recorded(recorder, count + 10))
    samples = read_samples(tmp_path / "log")
    assert max(sample["publish_time"] for sample in samples) > resumed_ns
    middle = (began_ns + resumed_ns) // 2
    assert [sample for sample in samples if sample["begin_time"] < middle < sample["publish_time"]] == []


def test_samples_do_not_decrease_log_time(prefix: str, tmp_path: Path) -> None:
    with timing_publisher("planner", "quotes") as stage, Recorder(tmp_path / "log") as recorder:

        def has_many_samples() -> bool:
            stage.send(timing_record(5, 6, 7, 4))
            return recorder.stats().messages > next(sent) + 20

        sent = itertools.count(1)
        wait_until(has_many_samples, interval=0.01)
    times = [message.log_time for message in LogReader(tmp_path / "log")]
    blocks = [batch["log_time"].to_pylist() for batch in LogReader(tmp_path / "log").batches(["log_time"])]
    assert [time for block in blocks for time in block] == sorted(times)
    ends = [sample["publish_time"] for sample in read_samples(tmp_path / "log")]
    assert len(ends) > 20
    assert max(ends) <= max(times)


def test_samples_are_written_before_a_long_chunk_ends(prefix: str, tmp_path: Path) -> None:
    with timing_publisher("planner", "quotes"), Recorder(tmp_path / "log", chunk_seconds=60) as recorder:
        wait_until(lambda: recorder.stats().at_risk_bytes > 2000)
    last = [message.log_time for message in LogReader(tmp_path / "log") if message.endpoint == SAMPLES_ENDPOINT]
    assert len(set(last)) > 1


class KindWithoutStats(kinds.Kind):
    """A kind whose folder has no file stats.py."""

    def has_part(self, file: str) -> bool:
        return file != "stats" and super().has_part(file)

    @property
    def stats(self) -> KindStats:
        raise InvalidValueError("no part 'stats'")


def open_broken_watch(_name: str, _prefix: str) -> Any:
    raise TypeError("no statistics today")


@pytest.fixture
def blob_kind(monkeypatch: pytest.MonkeyPatch, prefix: str) -> Iterator[str]:
    """Register a kind of another distribution, and return an endpoint."""
    monkeypatch.setattr(kinds, "_registered_kinds", {})
    kinds.register_kind(KIND)
    append("notes", prefix, b"first")
    yield KIND.endpoint("notes")
    shutil.rmtree(blob_path("notes", prefix).parent)


def record_stage_with_samples(log: Path) -> dict[str, str]:
    """Record a stage until it has samples, and return the endpoints that were not recorded, with reasons."""
    with timing_publisher("planner", "quotes") as stage, Recorder(log) as recorder:
        stage.send(timing_record(5, 6, 7, 4))
        wait_until(lambda: recorder.stats().messages > 10)
        assert recorder.stats().endpoints == 2
    assert count_samples(log) > 0
    return recorder.stats().refused


def test_endpoint_of_kind_without_statistics_costs_no_samples(blob_kind: str, tmp_path: Path) -> None:
    kinds.register_kind(KindWithoutStats(**{field.name: getattr(KIND, field.name) for field in fields(KIND)}))
    assert record_stage_with_samples(tmp_path / "log") == {}


def test_error_of_plugin_costs_samples_of_its_endpoint_only_and_is_shown(
    blob_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgq_blobs.stats.STATS", KindStats(open_broken_watch, EndpointRow))
    refused = record_stage_with_samples(tmp_path / "log")
    assert refused == {SAMPLES_ENDPOINT: f"threads of {blob_kind}: TypeError: no statistics today"}


def test_failed_sampling_is_shown_and_recording_continues(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("no /proc")

    monkeypatch.setattr(thread_observer, "read_participants", fail)
    with timing_publisher("planner", "quotes") as stage, Recorder(tmp_path / "log") as recorder:
        wait_until(lambda: recorder.stats().refused == {SAMPLES_ENDPOINT: "no /proc"})
        stage.send(timing_record(5, 6, 7, 4))
        wait_until(lambda: recorder.stats().messages == 1)
    assert LogReader(tmp_path / "log").endpoints.keys() == {"timing:planner:quotes"}

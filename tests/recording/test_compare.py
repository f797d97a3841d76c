"""Comparing runs, and running programs on a log in virtual time."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import errors
from msgq.recording import LogReader, Tolerance, compare, replay
from msgq.recording.comparison.value_diff import find_value_difference
from msgq.simulation import Simulation
from tests.recording.logs import write_log

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS
JSON = msgq.Schema("state", "json")


def json_log(path: Path, *values: Any, endpoint: str = "state") -> Path:
    messages = ((endpoint, BEGIN + i * NS, json.dumps(value).encode()) for i, value in enumerate(values))
    return write_log(path, *messages, schemas={endpoint: JSON})


def test_comparison_of_equal_logs_reports_no_difference(tmp_path: Path) -> None:
    path = json_log(tmp_path / "a.mcap", {"x": 1}, {"x": 2})
    found = compare(path, LogReader(path))
    assert found
    assert str(found) == "the same: 2 messages compared, of 1 endpoints"


def test_comparison_reports_first_difference(tmp_path: Path) -> None:
    a = json_log(tmp_path / "a.mcap", {"x": 1.0}, {"x": [1, {"y": 2.0}]}, {"x": 3})
    b = json_log(tmp_path / "b.mcap", {"x": 1.0}, {"x": [1, {"y": 2.5}]}, {"x": 4})
    found = compare(a, b)
    assert not found
    first = found.first
    assert first is not None
    assert (first.endpoint, first.index, first.field, first.a, first.b) == ("state", 1, "x[1].y", 2.0, 2.5)
    assert (first.time_a, first.time_b) == (BEGIN + NS, BEGIN + NS)
    assert (found.endpoints["state"].a, found.endpoints["state"].different) == (3, 2)
    assert "'state' message 1, x[1].y: 2.0 at" in str(found)
    assert "'state': 3 messages and 3, 2 differ" in str(found)


@pytest.mark.parametrize(
    ("tolerances", "same"),
    [
        ({"state": 0.1}, True),
        ({"*": 0.1}, True),
        ({("state", "pose"): 0.1}, True),
        ({("*", "pose.x"): 0.1}, True),
        ({"state": Tolerance(relative=0.01)}, True),
        ({("state", "pose.x"): math.inf}, True),
        ({"state": 0.01}, False),
        ({"other": 0.1}, False),
        ({("state", "pose.y"): 0.1}, False),
        ({"state": 0.1, ("state", "pose.x"): 0}, False),
        ({"*": 0.1, "state": 0}, False),
    ],
)
def test_comparison_applies_tolerances(tmp_path: Path, tolerances: Any, same: Any) -> None:
    a = json_log(tmp_path / "a.mcap", {"pose": {"x": 10.0, "y": 1}})
    b = json_log(tmp_path / "b.mcap", {"pose": {"y": 1.0, "x": 10.05}})
    assert bool(compare(a, b, tolerances)) is same


def test_negative_tolerance_is_refused() -> None:
    with pytest.raises(errors.InvalidValueError):
        Tolerance(-1)


def test_comparison_without_schema_compares_bytes(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.mcap", ("e", 1, b'{"x": 1}'), ("f", 2, b"same"))
    b = write_log(tmp_path / "b.mcap", ("e", 5, b'{"x":1}'), ("f", 6, b"same"))
    found = compare(a, b, {"e": 1.0})
    assert found.first is not None
    assert (found.first.endpoint, found.first.field, found.first.a) == ("e", "", b'{"x": 1}')
    assert found.endpoints["f"].same
    assert compare(a, b, endpoints=["f"])
    assert compare(a, json_log(tmp_path / "c.mcap", {"x": 1}, endpoint="e"), endpoints=["e"])  # one side says how


@pytest.mark.parametrize(
    ("tolerances", "same"),
    [
        ({"e": math.inf}, True),
        ({"*": math.inf}, True),
        ({"e": 1e9}, False),
        ({"other": math.inf}, False),
        ({("e", "x"): math.inf}, False),
    ],
)
def test_comparison_without_schema_ignores_bytes_only_with_infinite_tolerance(
    tmp_path: Path, tolerances: Any, same: bool
) -> None:
    a = write_log(tmp_path / "a.mcap", ("e", 1, b"1"))
    b = write_log(tmp_path / "b.mcap", ("e", 1, b"2"))
    assert bool(compare(a, b, tolerances)) is same


def test_comparison_reports_message_missing_in_one_log(tmp_path: Path) -> None:
    a = json_log(tmp_path / "a.mcap", 1, 2, 3)
    b = json_log(tmp_path / "b.mcap", 1, 2)
    for one, other, side in ((a, b, "first"), (b, a, "second")):
        found = compare(one, other)
        assert found.first is not None
        assert (found.first.index, found.first.field) == (2, "")
        assert f"only the {side} has it: 3 at" in str(found.first)
        assert found.endpoints["state"].different == 0


def test_comparison_with_time_tolerance_compares_times(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.mcap", *(("e", BEGIN + i * NS, b"x") for i in range(3)))
    b = write_log(tmp_path / "b.mcap", *(("e", i * NS + i**2 * 1000, b"x") for i in range(1, 4)))
    assert compare(a, b)
    assert compare(a, b, time_tolerance=1e-5)
    found = compare(a, b, time_tolerance=5e-6)
    assert found.first is not None
    assert (found.first.index, found.first.field, found.first.a, found.first.b) == (2, ".time", 2 * NS, 2 * NS + 8000)


def test_comparison_reports_earliest_difference_of_all_endpoints(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.mcap", ("a", 1, b"0"), ("b", 2, b"0"), ("a", 3, b"0"))
    b = write_log(tmp_path / "b.mcap", ("a", 1, b"0"), ("b", 2, b"1"), ("a", 3, b"1"))
    first = compare(a, b).first
    assert first is not None
    assert first.endpoint == "b"


def get_exact_tolerance(_path: str) -> Tolerance:
    return Tolerance()


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        (math.nan, math.nan, None),
        (1, 1.0, None),
        (True, 1, ""),
        ("a", "b", ""),
        ([1, 2], [1, 2, 3], ""),
        ({"a": 1}, {"a": 1, "b": 2}, "b"),
        ({"a": None}, {}, "a"),
        (10**400, 10**400 + 1, ""),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), None),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]), "[1,1]"),
        (np.array(["a"]), np.array(["b"]), "[0]"),
        (np.zeros(2), np.zeros(3), ""),
        (np.zeros(1, [("p", [("x", "f4", 3)])])[0], np.ones(1, [("p", [("x", "f4", 3)])])[0], "p.x[0]"),
        (np.zeros(2, [("x", "f4")]), np.array([(0,), (1,)], [("x", "f4")]), "[1].x"),
    ],
)
def test_comparison_reports_path_of_different_value(a: Any, b: Any, path: str | None) -> None:
    found = find_value_difference(a, b, get_exact_tolerance)
    assert (found and found[0]) == path


def test_comparison_applies_tolerance_to_protobuf_defaults() -> None:
    wrappers = pytest.importorskip("google.protobuf.wrappers_pb2")
    one, other = wrappers.DoubleValue(), wrappers.DoubleValue(value=1e-9)
    assert find_value_difference(one, other, get_exact_tolerance) == ("value", 0.0, 1e-9)
    assert find_value_difference(one, other, lambda _: Tolerance(1e-6)) is None


def test_comparison_of_structs_applies_tolerance(tmp_path: Path) -> None:
    dtype = np.dtype([("x", "<f8"), ("publish_time", "<i8")])
    schema = msgq.Schema("sample", "struct", json.dumps(np.lib.format.dtype_to_descr(dtype)).encode())
    for name, value, when in (("a", 1.0, 5), ("b", 1.0 + 1e-9, 6)):
        data = np.array([(value, when)], dtype).tobytes()
        write_log(tmp_path / f"{name}.mcap", ("e", BEGIN, data), schemas={"e": schema})
    a, b = tmp_path / "a.mcap", tmp_path / "b.mcap"
    assert compare(a, b, {"e": 1e-6, ("e", "publish_time"): math.inf})
    assert str(compare(a, b, {"e": 1e-6}).first).startswith("'e' message 0, publish_time: 5")


# ---- programs in virtual time ----


def publish_mean_speeds() -> None:
    """A program: the mean of all speeds so far, and when."""
    speeds, means = msgq.sub_sock("speed"), msgq.pub_sock("mean")
    total = 0.0
    for count in range(1, sys.maxsize):
        total += json.loads(speeds.receive() or b"")
        means.send(json.dumps({"mean": total / count, "at": time.time()}).encode())


def speed_log(path: Path) -> Path:
    return json_log(path, *(i * 0.1 for i in range(50)), endpoint="speed")


def test_two_replays_of_one_log_give_equal_output(tmp_path: Path) -> None:
    log = LogReader(speed_log(tmp_path / "a.mcap"))
    first, second = replay(log, publish_mean_speeds), replay(log, publish_mean_speeds)
    assert first == second
    assert len(first) == 50
    assert {message.endpoint for message in first} == {"mean"}
    assert json.loads(first[0].data)["at"] == BEGIN / NS
    assert first[-1].time_ns == BEGIN + 49 * NS
    assert compare(first, second, time_tolerance=0)


def test_replay_matches_reference(tmp_path: Path) -> None:
    log = LogReader(speed_log(tmp_path / "a.mcap"))
    outputs = replay(log, publish_mean_speeds)
    values = [json.loads(message.data) for message in outputs]
    json_log(tmp_path / "b.mcap", *({**value, "mean": value["mean"] + 1e-12} for value in values), endpoint="mean")
    assert not compare(outputs, tmp_path / "b.mcap")
    assert compare(outputs, tmp_path / "b.mcap", {("mean", "mean"): 1e-9}, time_tolerance=0)


def test_simulation_comparison_ignores_played_messages(tmp_path: Path) -> None:
    path = speed_log(tmp_path / "a.mcap")
    from msgq.recording import playback_messages

    with Simulation() as sim:
        sim.add(publish_mean_speeds)
        sim.play(playback_messages(LogReader(path)))
        sim.run()
    found = compare(sim, sim)
    assert found
    assert list(found.endpoints) == ["mean"]


def test_replay_delivers_large_messages(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("frame", BEGIN, bytes(3_000_000)))

    def sizes() -> None:
        frames, out = msgq.sub_sock("frame"), msgq.pub_sock("size")
        while True:
            out.send(b"%d" % len(frames.receive() or b""))

    assert [message.data for message in replay(LogReader(path), sizes)] == [b"3000000"]


def test_replay_of_empty_log_is_refused(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("frame", BEGIN, b"x"))
    with pytest.raises(errors.RecordingError, match="nothing to play"):
        replay(LogReader(path, exclude="frame"), publish_mean_speeds)

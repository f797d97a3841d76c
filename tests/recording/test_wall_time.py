"""Times by the wall clock: what it showed while a recording was made, though somebody set it meanwhile."""

from __future__ import annotations

import csv
import json
import pickle
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap import records
from mcap.reader import make_reader

import msgq
from msgq import errors
from msgq.impl.base import clock
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, SegmentWriter, encode_channel
from msgq.recording.mcap_io.wall_time import WallTimeConverter
from msgq.recording.merge.log_copy import write_merged_log
from msgq.recording.reader.message import Message
from msgq.recording.recorder import wall_clock
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits, RollingWriter
from msgq.recording.recorder.wall_clock import ClockReading, WallClock
from tests.command import run
from tests.recording.logs import MCAP_MAGIC, channel, encode_parts, message
from tests.support import wait_until

HOUR = 3600 * 10**9
BEGIN = 10**18  # time of the first message, by the host's clock
BOOTED = BEGIN - 10 * HOUR  # difference of the host's clock and CLOCK_MONOTONIC
RUN = {"run": "a" * 32}


def noted(ahead: int, since: int = 0) -> tuple[str, dict[str, str]]:
    """Return a note that the wall clock is so far ahead: from the beginning on, or since a time."""
    said = RUN | {"clock_offset_ns": str(BOOTED), "wall_offset_ns": str(BOOTED + ahead), "since_ns": str(since)}
    return metadata_keys.CLOCK_METADATA if since else metadata_keys.RECORDING_METADATA, said


def write_segment(path: Path, ahead: int, *parts: tuple[int, int] | list[int], ends: bool = True) -> Path:
    """Write a recording: of a list of log_times a chunk with such messages, of a pair (since, ahead) a note."""
    segment = SegmentWriter(path, ChunkCompressor("zstd", None), noted(ahead)[1])
    described = {
        1: encode_channel(1, "e", msgq.Schema("n", "struct", b'"<i8"'), 1, metadata_keys.PUBLISHER_SEQUENCE),
    }
    sequence = 0
    for part in parts:
        if isinstance(part, tuple):
            segment.write_metadata(*noted(part[1], part[0]))
            continue
        chunk = ChunkBuffer(1 << 16, 100)
        for time in part:
            assert chunk.append_message(1, sequence, time, time - 30, time.to_bytes(8, "little"), time - 50)
            sequence += 1
        segment.write_chunk(chunk, described)
    segment.close({}) if ends else segment.close_without_summary()
    return path


def write_loose_messages(path: Path, *parts: Any) -> Path:
    """Write a file of one channel outside of chunks."""
    path.write_bytes(MCAP_MAGIC + encode_parts(records.Header("", "test"), channel(1, "e"), *parts))
    return path


def list_times(messages: Iterable[Message]) -> list[tuple[int, int]]:
    """Return of each message its log_time, and what that was by the host's clock, since the first one of all."""
    return [(m.log_time - BEGIN, int.from_bytes(m.data, "little") - BEGIN) for m in messages]


def step_back(directory: Path, name: str = "a", ends: bool = True) -> Path:
    """Write a log in which the wall clock was set an hour back in the middle of the second chunk."""
    chunks = [BEGIN, BEGIN + 10], [BEGIN + 20, BEGIN + 30], [BEGIN + 40]
    return write_segment(
        directory / f"{name}.mcap", HOUR + 5, chunks[0], (BEGIN + 30, 5), chunks[1], chunks[2], ends=ends
    )


SHOWN = [(35, 30), (45, 40), (HOUR + 5, 0), (HOUR + 15, 10), (HOUR + 25, 20)]


@pytest.mark.parametrize("ends", [True, False])
def test_wall_clock_reader_gives_wall_times(tmp_path: Path, ends: bool) -> None:
    log = LogReader(step_back(tmp_path, ends=ends), clock="wall")
    found = list(log)
    assert list_times(found) == SHOWN  # in the order of log_time, which it went back in
    assert {m.log_time - m.publish_time for m in found} == {30}  # an age is what it was
    assert {m.log_time - m.origin_time for m in found} == {50}
    assert (log.start_time, log.end_time) == (BEGIN + 35, BEGIN + HOUR + 25)
    assert not log.problems


def test_reader_uses_host_clock_by_default(tmp_path: Path) -> None:
    path = step_back(tmp_path)
    expected = [(time, time) for time in (0, 10, 20, 30, 40)]
    assert list_times(LogReader(path)) == list_times(LogReader(path, clock="host")) == expected


def test_time_range_uses_selected_clock(tmp_path: Path) -> None:
    log = LogReader(step_back(tmp_path), clock="wall", start=BEGIN + 40, end=BEGIN + HOUR + 15)
    assert list_times(log) == [(45, 40), (HOUR + 5, 0)]
    assert list_times(log.between(start=BEGIN + HOUR)) == [(HOUR + 5, 0)]
    assert list_times(log.between(end=BEGIN + HOUR)) == [(45, 40)]


def test_all_read_methods_give_wall_times(tmp_path: Path) -> None:
    path = step_back(tmp_path)
    log = LogReader(path, clock="wall")
    in_file = [SHOWN[2], SHOWN[3], SHOWN[4], SHOWN[0], SHOWN[1]]
    batch = next(log.batches(["log_time", "publish_time", "origin_time", "data"]))
    assert [time - BEGIN for time in batch.column("log_time").to_pylist()] == [shown for shown, _ in in_file]
    assert [time - BEGIN + 30 for time in batch.column("publish_time").to_pylist()] == [shown for shown, _ in in_file]
    assert [time - BEGIN + 50 for time in batch.column("origin_time").to_pylist()] == [shown for shown, _ in in_file]
    later = next(log.between(start=BEGIN + HOUR).batches(["log_time", "data"]))
    assert [int.from_bytes(data, "little") - BEGIN for data in later.column("data").to_pylist()] == [0, 10, 20]
    assert log.between(end=BEGIN + HOUR).to_numpy("e").tolist() == [BEGIN + 30, BEGIN + 40]
    pieces = [pickle.loads(pickle.dumps(piece)) for piece in log.split(1)]
    assert [list_times(piece) for piece in pieces] == [SHOWN[2:4], [SHOWN[0], SHOWN[4]], [SHOWN[1]]]
    info = log.endpoints["e"]
    assert (info.first_time, info.last_time, info.messages) == (BEGIN + 35, BEGIN + HOUR + 25, 5)
    assert list_times(log.full_history("topic")) == SHOWN
    assert [message.log_time - BEGIN for message, _ in log.decoded()] == [shown for shown, _ in SHOWN]


def test_wall_times_in_part_of_file_use_earlier_clock_readings(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "a.mcap", HOUR, [BEGIN], (BEGIN + 5, 0), [BEGIN + 10], [BEGIN + 20], ends=False)
    (*_, (_, last)) = LogReader(path).log_view.iter_wanted_blocks()
    assert list_times(LogReader(path, clock="wall", span=(last.offset, path.stat().st_size))) == [(20, 20)]
    whole = LogReader(path, clock="wall", span=(0, path.stat().st_size))
    assert list_times(whole) == [(10, 10), (20, 20), (HOUR, 0)]


def test_statistics_are_converted_to_wall_time_without_clock_step(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "a.mcap", HOUR, [BEGIN, BEGIN + 10])
    log = LogReader(path, clock="wall")
    assert log.has_statistics
    info = log.endpoints["e"]
    assert (info.first_time, info.last_time) == (BEGIN + HOUR, BEGIN + HOUR + 10)
    assert not LogReader(step_back(tmp_path, "b"), clock="wall").has_statistics  # only the messages tell


def test_each_file_has_separate_wall_clock_offset(tmp_path: Path) -> None:
    write_segment(tmp_path / "000000.mcap", 2 * HOUR, [BEGIN])
    write_segment(tmp_path / "000001.mcap", 0, [BEGIN + 10])
    assert list_times(LogReader(tmp_path, clock="wall")) == [(10, 10), (2 * HOUR, 0)]


def test_wall_times_apply_to_messages_outside_chunks(tmp_path: Path) -> None:
    parts: list[Any] = [records.Metadata(*noted(100)), message(1, 0, 1000), message(1, 1, 2000)]
    parts += [records.Metadata(*noted(0, 2000)), message(1, 2, 3000)]
    path = write_loose_messages(tmp_path / "a.mcap", *parts)
    log = LogReader(path, clock="wall")
    assert [found.log_time for found in log] == [1100, 2000, 3000]
    assert [found.log_time for found in log.between(2000, 3000)] == [2000]


@pytest.mark.seeds(2, 20, 100)
def test_wall_times_after_random_clock_steps_agree_with_model(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    now, ahead, shown = 0, rng.randint(-300, 300), []
    parts: list[Any] = []
    first = ahead
    for _ in range(rng.randint(1, 8)):
        chunk = []
        for _ in range(rng.randint(1, 30)):
            now += rng.randint(0, 20)
            chunk.append(now)
        parts.append([BEGIN + time for time in chunk])
        for step in sorted(rng.sample(range(chunk[0], now + 5), min(rng.choice((0, 0, 1, 3)), now + 5 - chunk[0]))):
            parts.append((BEGIN + step, rng.randint(-300, 300)))
            now = max(now, step)
    steps = [(0, first), *(part for part in parts if isinstance(part, tuple))]
    for part in parts:
        if isinstance(part, list):
            shown += [time + [ahead for since, ahead in steps if since <= time][-1] for time in part]
    path = write_segment(tmp_path / "a.mcap", first, *parts, ends=rng.random() < 0.5)
    start, end = sorted(BEGIN + rng.randint(-300, now + 300) for _ in range(2))
    log = LogReader(path, clock="wall")
    assert [found.log_time for found in log] == sorted(shown)
    assert [found.log_time for found in log.between(start, end)] == sorted(t for t in shown if start <= t < end)
    batches = [batch.column("log_time").to_numpy() for batch in log.between(start, end).batches(["log_time"], rows=7)]
    assert np.concatenate([np.empty(0, np.int64), *batches]).tolist() == [t for t in shown if start <= t < end]
    assert (log.start_time, log.end_time) == (min(shown), max(shown))


def test_file_without_clock_readings_keeps_host_times(tmp_path: Path) -> None:
    path = write_loose_messages(tmp_path / "a.mcap", message(1, 0, 1000))
    log = LogReader(path, clock="wall")
    assert [found.log_time for found in log] == [1000]
    assert not log.problems


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall_offset_ns": "now"},
        {"wall_offset_ns": str(1 << 62)},
        {"wall_offset_ns": "9" * 5000},
        {"wall_offset_ns": "٣"},
        {"clock_offset_ns": ""},
        {"since_ns": "-"},
        {"since_ns": "-1"},
    ],
)
def test_invalid_clock_readings_are_reported_as_problem(tmp_path: Path, wrong: dict[str, str]) -> None:
    name, note = noted(HOUR)
    path = write_loose_messages(tmp_path / "a.mcap", records.Metadata(name, note | wrong), message(1, 0, 1000))
    log = LogReader(path, clock="wall")
    assert [found.log_time for found in log] == [1000]
    assert len(log.problems) == 1
    assert "the wall clock is unknown" in log.problems[0].reason
    assert not LogReader(path).problems  # nobody asked


@pytest.mark.parametrize(("ahead", "expected"), [(HOUR, [1000 + HOUR]), (0, [1000])])
def test_file_of_runs_with_different_clocks_is_reported_as_problem(
    tmp_path: Path, ahead: int, expected: list[int]
) -> None:
    """Where their clocks differ, nobody can know which messages are of which."""
    others = records.Metadata(metadata_keys.RECORDING_METADATA, noted(HOUR, 500)[1] | {"run": "another"})
    path = write_loose_messages(tmp_path / "a.mcap", records.Metadata(*noted(ahead)), others, message(1, 0, 1000))
    log = LogReader(path, clock="wall")
    assert [found.log_time for found in log] == expected
    assert len(log.problems) == (ahead == 0)


def test_wall_times_do_not_overflow(tmp_path: Path) -> None:
    most, least = (1 << 62) - 1, -(1 << 62) + 1
    for ahead, expected in ((most - least, 2**63 - 2), (least - most, 0)):
        wall, host = (most, least) if ahead > 0 else (least, most)
        note = {"wall_offset_ns": str(wall), "clock_offset_ns": str(host), "since_ns": "0"}
        parts = records.Metadata(metadata_keys.RECORDING_METADATA, note), message(1, 0, 2**62), message(1, 1, 0)
        path = write_loose_messages(tmp_path / f"{expected}.mcap", *parts)
        found = [one.log_time for one in LogReader(path, clock="wall")]
        assert expected in found
        assert all(0 <= time < 2**63 for time in found)


def test_clock_reading_count_is_bounded(tmp_path: Path) -> None:
    notes = [records.Metadata(*noted(number % 2, number)) for number in range(6000)]
    path = write_loose_messages(tmp_path / "a.mcap", *notes, message(1, 0, 10))
    log = LogReader(path, clock="wall")
    assert len(list(log)) == 1
    assert any("later changes are ignored" in problem.reason for problem in log.problems)


def test_unknown_clock_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValueError, match="sun"):
        LogReader(step_back(tmp_path), clock="sun")


def test_clock_step_in_queued_chunk_is_stored_in_segment_of_that_chunk(tmp_path: Path) -> None:
    """The segment before ends when that chunk has come already."""
    now = clock.time_ns()
    wall = WallClock()
    wall._readings = [ClockReading(0, BOOTED), ClockReading(now - HOUR, BOOTED + HOUR)]
    output = RollingWriter(
        tmp_path / "log", RecordingLimits(split_messages=1), ChunkCompressor("zstd", None), BOOTED, wall, ""
    )
    described = {1: encode_channel(1, "e", None, 1, metadata_keys.PUBLISHER_SEQUENCE)}
    for ages in ([2 * HOUR], [2 * HOUR - 1, HOUR + 1, HOUR - 1]):
        chunk = ChunkBuffer(1 << 16, 100)
        for age in ages:
            assert chunk.append_message(1, 0, now - age, now - age, b"x")
        output.write_chunk(chunk, described, dict)
    output.close({})
    found = LogReader(tmp_path / "log", clock="wall")
    assert [m.log_time - now for m in found] == [-2 * HOUR, -2 * HOUR + 1, -HOUR - 1, 1]


def test_clock_step_before_first_message_of_chunk_is_stored(tmp_path: Path) -> None:
    """A frame is appended up to `chunk_seconds` after its receipt."""
    now = clock.time_ns()
    wall = WallClock()
    wall._readings = [ClockReading(0, BOOTED), ClockReading(now - HOUR, BOOTED + HOUR)]
    output = RollingWriter(tmp_path / "log", RecordingLimits(), ChunkCompressor("zstd", None), BOOTED, wall, "")
    described = {1: encode_channel(1, "e", None, 1, metadata_keys.PUBLISHER_SEQUENCE)}
    chunk = ChunkBuffer(1 << 16, 100)
    for age in (HOUR - 2, HOUR + 1):
        assert chunk.append_message(1, 0, now - age, now - age, b"x")
    output.write_chunk(chunk, described, dict)
    output.close({})
    found = LogReader(tmp_path / "log", clock="wall")
    assert [m.log_time - now for m in found] == [-HOUR - 1, 2]


def test_wall_time_range_covers_all_clock_steps() -> None:
    times_by = WallTimeConverter([noted(100)[1], noted(0, 50)[1], noted(200, 60)[1]])
    assert times_by.recorded_offsets_ns == (100, 0, 200)
    assert times_by.find_wall_time_range(10, 20) == (110, 120)
    assert times_by.find_wall_time_range(10, 55) == (50, 149)
    assert times_by.find_wall_time_range(50, 59) == (50, 59)
    assert times_by.find_wall_time_range(0, 70) == (50, 270)


# ---- copies ----


def test_copy_keeps_clock_readings(tmp_path: Path) -> None:
    """In the second segment the recorder noted once more what it was."""
    (tmp_path / "log").mkdir()
    write_segment(tmp_path / "log/000000.mcap", HOUR, [BEGIN], (BEGIN + 5, 0), [BEGIN + 10])
    again = write_segment(tmp_path / "log/000001.mcap", 0, [BEGIN + 20], (BEGIN + 25, 7), [BEGIN + 30])
    expected = [(10, 10), (20, 20), (37, 30), (HOUR, 0)]
    assert list_times(LogReader(tmp_path / "log", clock="wall")) == expected
    write_merged_log([LogReader(tmp_path / "log")], tmp_path / "copy.mcap")
    assert list_times(LogReader(tmp_path / "copy.mcap", clock="wall")) == expected
    write_merged_log([LogReader(again, start=BEGIN + 25)], tmp_path / "part.mcap")
    assert list_times(LogReader(tmp_path / "part.mcap", clock="wall")) == [(37, 30)]


def test_copy_of_several_runs_keeps_host_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = step_back(tmp_path, "one")
    monkeypatch.setitem(RUN, "run", "b" * 32)
    other = write_segment(tmp_path / "other.mcap", 7, [BEGIN + 100])
    write_merged_log([LogReader(one), LogReader(other)], tmp_path / "copy.mcap")
    log = LogReader(tmp_path / "copy.mcap", clock="wall")
    assert list_times(log) == [(time, time) for time in (0, 10, 20, 30, 40, 100)]
    assert not log.problems


def test_copy_with_wall_clock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValueError, match="host"):
        write_merged_log([LogReader(step_back(tmp_path), clock="wall")], tmp_path / "copy.mcap")


# ---- the command ----


def test_bag_info_shows_both_clocks(tmp_path: Path) -> None:
    path = step_back(tmp_path)
    by_host = json.loads(run("bag", "info", "--json", path).stdout.splitlines()[0])
    by_wall = json.loads(run("bag", "info", "--json", "--clock", "wall", path).stdout.splitlines()[0])
    assert (by_host["start"], by_host["end"]) == (BEGIN, BEGIN + 40)
    assert (by_wall["start"], by_wall["end"]) == (BEGIN + 35, BEGIN + HOUR + 25)
    assert by_host["clock_offset"] == by_wall["clock_offset"] == [HOUR + 5, 5]
    assert "3600.000 s, then 0.000 s ahead of the host's clock" in run("bag", "info", path).stdout


def test_bag_convert_uses_selected_clock(tmp_path: Path) -> None:
    path = step_back(tmp_path)
    chosen = "--start", datetime.fromtimestamp(BEGIN // 10**9 + 3600, UTC).isoformat()  # a second is long here
    run("bag", "convert", path, "-o", tmp_path / "wall.csv", "--clock", "wall", *chosen)
    run("bag", "convert", path, "-o", tmp_path / "host.csv", *chosen)
    with (tmp_path / "wall.csv").open() as file:
        assert [int(row["log_time"]) - BEGIN for row in csv.DictReader(file)] == [HOUR + 5, HOUR + 15, HOUR + 25]
    with (tmp_path / "host.csv").open() as file:
        assert list(csv.DictReader(file)) == []


# ---- processes that note the difference ----


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets the wall clock so far ahead of what it is."""
    real, by = clock.wall_offset_ns, [0]

    class Clock:
        time_ns = staticmethod(clock.time_ns)

        @staticmethod
        def wall_offset_ns() -> int:
            return real() + by[0]

    monkeypatch.setattr(wall_clock, "clock", Clock)
    return lambda ns: by.__setitem__(0, ns)


def test_clock_watcher_detects_wall_clock_steps(ahead: Any) -> None:
    looked = WallClock()
    first = looked.find_reading(0).offset_ns
    looked.sample_offset()
    assert looked.list_readings(0, 2**63) == []
    before = clock.time_ns()
    ahead(HOUR)
    looked.sample_offset()
    looked.sample_offset()
    (step,) = looked.list_readings(0, 2**63)
    assert before <= step.since_ns <= clock.time_ns()
    assert abs(step.offset_ns - first - HOUR) < 10**6
    assert looked.find_reading(before).offset_ns == first
    assert looked.find_reading(step.since_ns) == step
    assert looked.list_readings(step.since_ns, 2**63) == []


def test_recording_with_wall_clock_steps_has_wall_times(prefix: str, tmp_path: Path, ahead: Any) -> None:
    """The wall clock is set a day ahead in the middle of a segment, and back before another one begins."""
    pub = msgq.pub_sock("e")
    day = 24 * HOUR
    with Recorder(tmp_path / "log", chunk_seconds=0.01, limits=RecordingLimits(split_messages=2)) as recorder:
        for number, by in enumerate((0, day, 0)):
            ahead(by)
            settled = number + 1 if number else 1
            wait_until(lambda settled=settled: len(recorder._wall_clock._readings) == settled)  # type: ignore[misc]
            pub.send(b"%d" % number)
            wait_until(lambda number=number: recorder.stats().messages > number)  # type: ignore[misc]
            wait_until(lambda: not recorder.stats().at_risk_bytes)
    host = {m.data: m.log_time for m in LogReader(tmp_path / "log")}
    wall = {m.data: m.log_time for m in LogReader(tmp_path / "log", clock="wall")}
    real = clock.wall_offset_ns() - clock.offset_ns()
    moved = [wall[data] - host[data] - real for data in (b"0", b"1", b"2")]
    assert [round(by / HOUR, 3) for by in moved] == [0, 24, 0]
    assert recorder.stats().segments == 2
    segments = [make_reader(BytesIO(path.read_bytes())) for path in sorted((tmp_path / "log").iterdir())]
    noted = [record.metadata for reader in segments for record in reader.iter_metadata() if record.name == "msgq.clock"]
    assert [round((int(note["wall_offset_ns"]) - clock.wall_offset_ns()) / HOUR, 3) for note in noted] == [24, 0]


def test_segment_starts_with_clock_reading_of_its_first_message(prefix: str, tmp_path: Path, ahead: Any) -> None:
    """A snapshot is of a while ago."""
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", snapshot_seconds=60, chunk_seconds=0.01) as recorder:
        pub.send(b"before")
        wait_until(lambda: recorder.stats().messages == 1)
        ahead(HOUR)
        wait_until(lambda: len(recorder._wall_clock._readings) == 2)
        pub.send(b"after")
        recorder.snapshot()
    found = list(LogReader(tmp_path / "log", clock="wall"))
    assert [one.data for one in found] == [b"before", b"after"]
    assert found[1].log_time - found[0].log_time >= HOUR


def test_clock_readings_are_written_before_end_of_segment(prefix: str, tmp_path: Path, ahead: Any) -> None:
    """A kill leaves a file without an end."""
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as recorder:
        for number in range(2):
            ahead(number * HOUR)
            wait_until(partial(lambda n: len(recorder._wall_clock._readings) == n + 1, number))
            pub.send(b"%d" % number)
            wait_until(partial(lambda n: recorder.stats().messages > n, number))
        wait_until(lambda: not recorder.stats().at_risk_bytes)
        first, second = LogReader(tmp_path / "log", clock="wall")
        assert second.log_time - first.log_time >= HOUR

"""Offsets of streams: bounded, each message once, over restarts, kills and deletions."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from msgq.errors import InvalidValueError, RecordingError
from msgq.spark.source import position_files
from msgq.spark.source.position_files import FILE_FIELD
from tests.recording.logs import build_recording_head
from tests.spark.mortal import kill_streams
from tests.spark.stream_query import StreamQuery, make_reader, read_times
from tests.spark.test_stream import CLOSED, append, part
from tests.support import Child

LISTED_MAX = 4
HEAD = build_recording_head()


@pytest.fixture(autouse=True)
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let offsets list only a few positions."""
    monkeypatch.setattr(position_files, "LISTED_POSITIONS_MAX", LISTED_MAX)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    path = tmp_path / "recordings"
    path.mkdir()
    return path


def add_recordings(directory: Path, numbers: Iterable[int]) -> None:
    """Add closed recordings of five messages. The messages of recording n have the times from 1000 + 5 n."""
    for number in numbers:
        (directory / f"r{number}.mcap").write_bytes(HEAD + part(5 * number) + CLOSED)


def times_of(numbers: Iterable[int]) -> list[int]:
    return [1000 + 5 * number + index for number in numbers for index in range(5)]


def test_offset_stays_bounded_and_each_message_is_read_once(recordings: Path, tmp_path: Path) -> None:
    """With restarts, a recording that grows after a long pause, and a log of offsets that Spark shortens."""
    growing = recordings / "growing.mcap"
    growing.write_bytes(HEAD + part(1000))
    expected = times_of([200])
    for round_number in range(20):
        add_recordings(recordings, range(3 * round_number, 3 * round_number + 3))
        expected += times_of(range(3 * round_number, 3 * round_number + 3))
        if round_number == 15:
            append(growing, part(1005))
            expected += times_of([201])
        query = StreamQuery(recordings, tmp_path / "checkpoint", retained=5)
        assert query.run_batch()
        assert not query.run_batch()
        offset = query.read_offset(round_number)
        assert len(offset) <= LISTED_MAX
        assert len(query.reader._position_files.read_positions(offset)) == 3 * round_number + 4
        assert len(query.list_position_files()) <= 5 + 2
    assert len(query.list_position_files()) > 2
    assert query.read_table() == sorted(expected)


def test_unused_files_are_removed_also_after_kill_before_offset_is_stored(recordings: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    add_recordings(recordings, range(6))
    assert StreamQuery(recordings, checkpoint).run_batch()
    add_recordings(recordings, range(6, 12))
    killed = StreamQuery(recordings, checkpoint)
    unused = killed.reader.latestOffset(killed.read_offset(0), ReadAllAvailable())[FILE_FIELD]
    (checkpoint / "recording_positions" / f"{unused}.tmp").touch()  # remains of a kill in the middle of a file
    add_recordings(recordings, range(12, 18))
    query = StreamQuery(recordings, checkpoint)
    for first in (18, 24):
        assert query.run_batch()
        add_recordings(recordings, range(first, first + 6))
    assert query.list_position_files() == sorted(query.read_offset(number)[FILE_FIELD] for number in range(3))
    assert query.read_table() == times_of(range(24))


def test_stream_continues_from_checkpoint_of_earlier_release(recordings: Path, tmp_path: Path) -> None:
    add_recordings(recordings, range(10))
    before = StreamQuery(recordings, tmp_path / "checkpoint")
    before.reader = make_reader(recordings)
    assert before.run_batch()
    assert len(before.read_offset(0)) == 10
    add_recordings(recordings, range(10, 12))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    assert query.run_batch()
    assert list(query.read_offset(1)) == [FILE_FIELD]
    assert query.read_table() == times_of(range(12))


def test_stream_continues_from_each_kept_batch(recordings: Path, tmp_path: Path) -> None:
    """A user removes the newest batches from a checkpoint, so that Spark repeats them."""
    checkpoint = tmp_path / "checkpoint"
    query = StreamQuery(recordings, checkpoint, retained=6)
    for number in range(12):
        add_recordings(recordings, range(5 * number, 5 * number + 5))
        assert query.run_batch()
    for number in range(7, 12):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(checkpoint, copy)
        for path in (path for name in ("offsets", "commits", "table") for path in (copy / name).glob("[0-9]*")):
            if int(path.name) > number:
                path.unlink()
        returned = StreamQuery(recordings, copy)
        assert returned.read_table() == times_of(range(5 * number + 5))
        assert returned.run_batch() == (number < 11)
        add_recordings(recordings, range(60, 65))
        assert returned.run_batch()
        assert returned.read_table() == times_of(range(65))
        for path in recordings.glob("r6[0-4].mcap"):
            path.unlink()


def test_queries_on_same_recordings_are_independent(recordings: Path, tmp_path: Path) -> None:
    """Also two sources of one query, which have one checkpoint."""
    one, two = (StreamQuery(recordings, tmp_path / name, retained=2) for name in ("one", "two"))
    other = make_reader(recordings, checkpointLocation=str(tmp_path / "one"))
    offset = other.initialOffset()
    for number in range(8):
        add_recordings(recordings, range(5 * number, 5 * number + 5))
        before, offset = offset, other.latestOffset(offset, ReadAllAvailable())
        assert read_times(other, before, offset) == times_of(range(5 * number, 5 * number + 5))
        assert one.run_batch()
        if number % 2:
            assert two.run_batch()
    assert one.read_table() == two.read_table() == times_of(range(40))
    names = one.list_position_files()
    assert {offset[FILE_FIELD], one.read_offset(7)[FILE_FIELD]} < set(names)
    assert sum(name.startswith(offset[FILE_FIELD][:16]) for name in names) == 8, "none is in the log: none is removed"


def test_wrong_checkpoint_raises(recordings: Path, tmp_path: Path) -> None:
    add_recordings(recordings, range(6))
    with pytest.raises(InvalidValueError, match=r"not the checkpoint of this query: it has no file 'metadata'"):
        make_reader(recordings, checkpointLocation=str(tmp_path)).latestOffset({}, ReadAllAvailable())
    other = StreamQuery(recordings, tmp_path / "other")
    other.run_batch()
    query = StreamQuery(recordings, tmp_path / "own", checkpointLocation=str(tmp_path / "other"))
    assert query.run_batch()
    add_recordings(recordings, range(6, 12))
    assert other.run_batch()
    with pytest.raises(InvalidValueError, match=r"'.*/other'.*has no offset of this stream.*: move '.*' to"):
        query.run_batch()
    (tmp_path / "own/recording_positions").mkdir()
    for path in (tmp_path / "other/recording_positions").glob(f"{query.read_offset(0)[FILE_FIELD][:16]}-*"):
        path.rename(tmp_path / "own/recording_positions" / path.name)
    repaired = StreamQuery(recordings, tmp_path / "own")
    assert repaired.run_batch()
    assert repaired.read_table() == other.read_table() == times_of(range(12))


def test_checkpoint_uri_that_only_spark_accepts_raises(recordings: Path) -> None:
    add_recordings(recordings, range(6))
    with pytest.raises(InvalidValueError, match=r"'wasbs://a/b', which pyarrow cannot open: .*; use a path, or a URI"):
        make_reader(recordings, checkpointLocation="wasbs://a/b").latestOffset({}, ReadAllAvailable())


def test_missing_option_raises(recordings: Path, tmp_path: Path) -> None:
    add_recordings(recordings, range(6))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    query.run_batch()
    with pytest.raises(InvalidValueError, match=r"option 'checkpointLocation' is missing; give"):
        make_reader(recordings).latestOffset(query.read_offset(0), ReadAllAvailable())


@pytest.mark.parametrize("damage", ["missing", "damaged", "truncated"])
def test_missing_or_damaged_file_raises(recordings: Path, tmp_path: Path, damage: str) -> None:
    add_recordings(recordings, range(6))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    query.run_batch()
    [name] = query.list_position_files()
    path = tmp_path / "checkpoint/recording_positions" / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "truncated" else data[:50] + bytes([data[50] ^ 1]) + data[51:])
    text = (
        rf"file '.*/{name}' .* is {'missing' if damage == 'missing' else 'damaged'}; restore the file .* new checkpoint"
    )
    add_recordings(recordings, range(6, 12))
    with pytest.raises(RecordingError, match=text):
        StreamQuery(recordings, tmp_path / "checkpoint").run_batch()
    path.write_bytes(data)
    restored = StreamQuery(recordings, tmp_path / "checkpoint")
    assert restored.run_batch()
    assert restored.read_table() == times_of(range(12))


def test_unwritable_file_raises_and_loses_nothing(recordings: Path, tmp_path: Path) -> None:
    add_recordings(recordings, range(6))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    (tmp_path / "checkpoint/recording_positions").touch()
    with pytest.raises(RecordingError, match=r"file '.*' with the positions of this stream cannot be written: "):
        query.run_batch()
    (tmp_path / "checkpoint/recording_positions").unlink()
    assert query.run_batch()
    assert query.read_table() == times_of(range(6))


@pytest.mark.parametrize("has_file", [False, True])
def test_deleted_recording_leaves_offset(recordings: Path, tmp_path: Path, has_file: bool) -> None:
    """Only with a batch that has new messages. A new recording with the same name is read."""
    add_recordings(recordings, range(6))
    (recordings / "run").mkdir()
    (recordings / "run/000000.mcap").write_bytes(HEAD + part(500) + CLOSED)
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    if not has_file:
        query.reader = make_reader(recordings)
    assert query.run_batch()
    (recordings / "r0.mcap").unlink()
    shutil.rmtree(recordings / "run")
    assert not query.run_batch()
    add_recordings(recordings, [6])
    assert query.run_batch()
    gone = {str(recordings / name) for name in ("r0.mcap", "run")}
    positions = query.read_positions(1)
    assert set(positions) == {str(recordings / f"r{number}.mcap") for number in range(1, 7)}
    assert {name for name, place in query.read_offset(1).items() if place is None} == (gone if has_file else set())
    (recordings / "r0.mcap").write_bytes(HEAD + part(600) + CLOSED)
    (recordings / "run").mkdir()
    (recordings / "run/000000.mcap").write_bytes(HEAD + part(605) + CLOSED)
    assert query.run_batch()
    add_recordings(recordings, range(7, 14))
    assert query.run_batch()
    if has_file:
        assert list(query.read_offset(3)) == [FILE_FIELD]
    assert query.read_table() == times_of([*range(14), 100, 120, 121])


def test_recordings_of_unmounted_file_system_stay_in_offset(recordings: Path, tmp_path: Path) -> None:
    (recordings / "disk/day").mkdir(parents=True)
    add_recordings(recordings / "disk/day", range(6))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    assert query.run_batch()
    (recordings / "disk/day").rename(tmp_path / "day")
    add_recordings(recordings, range(6, 12))
    assert query.run_batch()
    (tmp_path / "day").rename(recordings / "disk/day")
    add_recordings(recordings, [12])
    assert query.run_batch()
    assert query.read_table() == times_of(range(13))


def test_position_of_directory_without_segments_stays(recordings: Path, tmp_path: Path) -> None:
    """Its recorder can write the next segment, also if another recording is in a directory below."""
    (recordings / "run/other").mkdir(parents=True)
    (recordings / "run/000000.mcap").write_bytes(HEAD + part(500) + CLOSED)
    add_recordings(recordings / "run/other", [0])
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    assert query.run_batch()
    (recordings / "run/000000.mcap").unlink()
    add_recordings(recordings, [1])
    assert query.run_batch()
    assert query.read_positions(1)[str(recordings / "run")]["segment"] == 1
    (recordings / "run/000002.mcap").write_bytes(HEAD + part(510) + CLOSED)
    with pytest.raises(RecordingError, match=r"segment 1 of recording '.*run' was deleted, and was not read"):
        query.run_batch()


def test_segment_deleted_before_read_is_reported_beyond_file(recordings: Path, tmp_path: Path) -> None:
    add_recordings(recordings, range(6))
    (recordings / "growing.mcap").write_bytes(HEAD + part(500))
    query = StreamQuery(recordings, tmp_path / "checkpoint")
    assert query.run_batch()
    (recordings / "growing.mcap").unlink()
    with pytest.raises(RecordingError, match=r"segment 0 of recording '.*growing.mcap' was deleted, and was read only"):
        query.run_batch()


def test_stream_killed_at_each_step_reads_each_message_once(recordings: Path, tmp_path: Path) -> None:
    """Kills of a query's process happen before each change on the disk, by its reader or by Spark.

    Failure would mean: lost or repeated messages, files that nobody removes, or a query that cannot start.
    """
    with Child(kill_streams) as child:
        child.hear()

        def run_stream(steps: int | None) -> int:
            child.say([str(recordings), str(tmp_path / "checkpoint"), LISTED_MAX, steps])
            ended: int = child.hear()
            return ended

        for step in itertools.count():
            shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
            for path in recordings.iterdir():
                path.unlink()
            add_recordings(recordings, range(6))
            assert run_stream(None) == 0
            add_recordings(recordings, range(6, 12))
            ended = run_stream(step)
            add_recordings(recordings, range(12, 18))
            assert run_stream(None) == 0
            add_recordings(recordings, range(18, 24))
            assert run_stream(None) == 0
            query = StreamQuery(recordings, tmp_path / "checkpoint")
            assert query.read_table() == times_of(range(24))
            named = [query.read_offset(number)[FILE_FIELD] for number in range(query.get_last_number() + 1)]
            assert query.list_position_files() == sorted(named)
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
        child.say(None)
    assert step >= 8

"""A lake holds each message once, whatever is ingested how often, and whoever dies meanwhile."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from msgq.errors import InvalidValueError, RecordingError, SparkError
from msgq.spark.lake import Lake, follow
from msgq.spark.lake.bronze import Bronze
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.journal import Journal
from msgq.spark.lake.message_files import RANGES, overlapping
from tests.recording import logs
from tests.spark.rows import listed, message, messages

DAY = 86_400_000_000_000


def recording(path: Path, first: int = 0, count: int = 10, topics: Any = ("a", "b"), start: int = 1000) -> Any:
    """Write a segment: `count` messages of each topic from this number on, a microsecond apart."""
    channels = [logs.channel(i + 1, topic) for i, topic in enumerate(topics)]
    sent = [
        logs.message(i + 1, number, start + 1000 * number + i, b"%d" % number)
        for number in range(first, first + count)
        for i in range(len(topics))
    ]
    return logs.write(path, logs.chunk(*channels, *sent))


def held(lake: Lake) -> Any:
    return listed(lake.messages(), "endpoint", "sequence", "data")


def numbers(first: Any, end: Any, topics: str = "ab") -> Any:
    return [(topic, number, b"%d" % number) for topic in topics for number in range(first, end)]


def test_ingested_twice_it_is_the_same_lake(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    recording(tmp_path / "000000.mcap")
    first = lake.ingest([tmp_path / "000000.mcap"])
    assert (first.messages, first.files, first.skipped) == (20, 1, 0)
    files = sorted((tmp_path / "lake" / "messages").rglob("*"))
    again = lake.ingest([tmp_path / "000000.mcap"])
    assert (again.messages, again.files, again.skipped) == (0, 0, 1)
    assert sorted((tmp_path / "lake" / "messages").rglob("*")) == files
    assert held(lake) == sorted(numbers(0, 10))


def test_segments_that_follow_each_other_are_added_without_comparing_messages(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path / "lake")
    recording(tmp_path / "000000.mcap")
    lake.ingest([tmp_path])
    recording(tmp_path / "000001.mcap", first=10)
    monkeypatch.setattr("msgq.spark.lake.bronze.tables.deduplicated", None)
    done = lake.ingest([tmp_path / "000000.mcap", tmp_path / "000001.mcap"])
    assert (done.messages, done.files, done.skipped) == (20, 1, 1)
    assert held(lake) == sorted(numbers(0, 20))


def test_each_piece_has_a_task_of_its_own_and_they_do_not_seem_to_overlap(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has two pieces which do not follow each other makes ranges that span what others have."""
    for name, size in (("_PARTITION_BYTES", 1), ("_PARTITION_BYTES_MIN", 1), ("_CHUNK_BYTES", 0)):
        monkeypatch.setattr(f"msgq.spark.source.options.{name}", size)
    monkeypatch.setattr("msgq.spark.lake.bronze.tables.deduplicated", None)
    for number in range(4):
        recording(tmp_path / f"{number}.mcap", first=10 * number)
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([tmp_path]).messages == 80
    assert len(list((tmp_path / "lake" / "messages").rglob("*.parquet"))) == 4


def test_copies_and_cuts_of_what_is_there_add_only_what_is_new(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([recording(tmp_path / "one.mcap")])
    shutil.copy(tmp_path / "one.mcap", tmp_path / "copy.mcap")
    assert lake.ingest([tmp_path / "copy.mcap"]).messages == 0
    assert lake.ingest([recording(tmp_path / "cut.mcap", first=7, count=6)]).messages == 6
    both = [recording(tmp_path / "x.mcap", first=13, count=3), recording(tmp_path / "y.mcap", first=14, count=3)]
    assert lake.ingest(both).messages == 8
    assert held(lake) == sorted(numbers(0, 17))


def test_a_file_that_grew_is_read_again_and_nothing_counts_twice(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    path = recording(tmp_path / "000000.mcap")
    lake.ingest([path])
    with path.open("ab") as file:
        late = [logs.message(1, number, 1000 + 1000 * number, b"%d" % number) for number in range(10, 15)]
        file.write(logs.chunk(logs.channel(1, "a"), *late))
    done = lake.ingest([path])
    assert (done.messages, done.files) == (5, 1)
    assert held(lake) == sorted(numbers(0, 10) + numbers(10, 15, "a"))


def test_messages_that_are_twice_in_one_file_count_once(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    twice = [logs.channel(1, "a"), *(logs.message(1, i // 2, 1000 + i // 2, b"x") for i in range(20))]
    assert lake.ingest([logs.write(tmp_path / "twice.mcap", logs.chunk(*twice))]).messages == 10


def test_messages_lie_by_date_and_size(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    sent = [logs.message(1, 0, 5), logs.message(1, 1, DAY + 5), logs.message(1, 2, DAY + 6, b"x" * 70_000)]
    lake.ingest([logs.write(tmp_path / "days.mcap", logs.chunk(logs.channel(1, "a"), *sent))])
    found = [(str(date), *rest) for date, *rest in listed(lake.messages(), "date", "class", "sequence", "bytes")]
    assert found == [("1970-01-01", "small", 0, 4), ("1970-01-02", "large", 2, 70_000), ("1970-01-02", "small", 1, 4)]


def test_what_cannot_be_read_is_in_a_table_and_the_rest_in_the_lake(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    good = recording(tmp_path / "good.mcap")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(recording(tmp_path / "whole.mcap", first=10).read_bytes()[:-7])
    (tmp_path / "none.mcap").write_bytes(b"")
    done = lake.ingest([good, cut, tmp_path / "none.mcap"])
    assert done.messages == 20
    assert {row["file"] for row in lake.problems().collect()} == {str(cut), str(tmp_path / "none.mcap")}
    assert len(done.problems) == lake.problems().count()


def test_what_is_not_there_is_said(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="nothing is at"):
        Lake(spark, tmp_path / "lake").ingest([tmp_path / "no"])
    with pytest.raises(InvalidValueError, match="ingest recordings first"):
        Lake(spark, tmp_path / "lake").table("gaps")
    assert Lake(spark, tmp_path / "lake").messages().count() == 0


def test_one_process_at_a_time_writes(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    path = recording(tmp_path / "000000.mcap")
    with lake._journal.locked(), pytest.raises(RecordingError, match="another process"):
        lake.ingest([path])
    assert lake.ingest([path]).messages == 20


def test_a_batch_of_a_stream_counts_once(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    rows = messages(spark, [message("a", i, i) for i in range(5)])
    assert [lake.append(rows), lake.append(rows)] == [5, 0]
    assert lake.messages().count() == 5


def test_rows_without_run_or_epoch_are_as_of_files_that_have_none(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    rows = messages(spark, [message("a", 0, 1, run=None, epoch=None, host=None, publish_time=None), message("a", 0, 1)])
    assert [lake.append(rows), lake.append(rows)] == [2, 0]
    assert listed(lake.messages(), "run", "epoch", "publish_time") == [("", 0, None), ("r", 1, 1)]
    assert lake.refresh() == 2


@pytest.mark.parametrize("name", ["endpoint", "sequence", "log_time", "data"])
def test_rows_that_cannot_be_messages_are_refused_by_name(spark: Any, tmp_path: Path, name: Any) -> None:
    lake = Lake(spark, tmp_path / "lake")
    with pytest.raises(InvalidValueError, match=f"a row's {name} is NULL"):
        lake.append(messages(spark, [message("a", 0, 1), message("a", 1, 2) | {name: None}]))
    assert lake.messages().count() == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_leaves_nothing_or_what_the_next_ingest_finishes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    """Before its entry is in the journal an ingest never was; afterwards it only remains to move files."""
    lake = Lake(spark, tmp_path / "lake")
    path = recording(tmp_path / "000000.mcap")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "commit" if moment == "before" else "_place", die)
        with pytest.raises(KeyboardInterrupt):
            lake.ingest([path])
    assert lake.messages().count() == 0
    assert lake.ingest([path]).messages == (20 if moment == "before" else 0)
    assert held(lake) == sorted(numbers(0, 10))
    assert not list((tmp_path / "lake" / "_staged").rglob("*.parquet"))


def test_gold_follows_what_is_ingested(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([recording(tmp_path / "one.mcap"), recording(tmp_path / "three.mcap", first=15)])
    assert lake.refresh() == 1
    assert lake.refresh() == 0
    assert listed(lake.table("gaps"), "endpoint", "lost") == [("a", 5), ("b", 5)]
    assert listed(lake.table("checks").where("check = 'lost'"), "endpoint", "passed") == [("a", False), ("b", False)]
    lake.ingest([recording(tmp_path / "two.mcap", first=10, count=5)])
    assert lake.refresh() == 1
    assert listed(lake.table("gaps"), "endpoint", "lost") == []
    assert listed(lake.table("endpoints"), "endpoint", "messages", "lost") == [("a", 25, 0), ("b", 25, 0)]
    assert "endpoints" in lake.register()
    assert spark.sql("SELECT sum(messages) FROM endpoints").first()[0] == 50


def test_a_path_may_have_any_characters(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "my lake [1] {a} ü%20*?")
    lake.ingest([recording(tmp_path / "one.mcap")])
    assert lake.ingest([recording(tmp_path / "two.mcap", first=5)]).messages == 10
    lake.refresh()
    assert held(lake) == sorted(numbers(0, 15))
    assert listed(lake.table("endpoints"), "messages") == [(15,), (15,)]
    assert lake.decode() == 2


def test_a_stream_that_begins_anew_leaves_nothing_out(spark: Any, tmp_path: Path) -> None:
    """Without its checkpoint a stream gives all again, in batches of the same numbers."""
    lake = Lake(spark, tmp_path / "lake")
    (tmp_path / "log").mkdir()
    for index in range(2):
        recording(tmp_path / "log" / f"{index:06}.mcap", 10 * index)
        assert follow(lake, str(tmp_path / "log"), str(tmp_path / "checkpoint"), every=None).awaitTermination(240)
        shutil.rmtree(tmp_path / "checkpoint")
    assert held(lake) == sorted(numbers(0, 20))


def test_who_waits_writes_when_the_other_one_is_done(tmp_path: Path) -> None:
    one, other = (Journal(Directory(str(tmp_path))) for _ in range(2))
    said = []

    def wait() -> None:
        with other.locked(wait=True):
            said.append("other")

    thread = threading.Thread(target=wait)
    with one.locked():
        thread.start()
        thread.join(0.2)  # long enough for whoever does not wait
        said.append("one")
    thread.join(60)
    assert said == ["one", "other"]


def test_what_failed_tasks_leave_and_kills_before_the_journal_do_no_harm_in_other_formats(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path / "lake", "orc")
    path = recording(tmp_path / "one.mcap")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    def stage(*arguments: Any) -> Any:
        found = staged(*arguments)
        part = next((tmp_path / "lake" / "_staged").rglob("*.parquet"))
        (part.parent / "torn.parquet").write_bytes(b"PAR1")
        return found

    staged = Bronze._stage_files
    with monkeypatch.context() as patch:
        patch.setattr(Bronze, "_stage_files", stage)
        patch.setattr(Journal, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            lake.ingest([path])
    assert lake.ingest([path]).messages == 0
    assert held(lake) == sorted(numbers(0, 10))
    assert lake.refresh() == 1


def test_another_format_has_the_same_tables(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake", "orc")
    path = recording(tmp_path / "one.mcap")
    assert lake.ingest([path]).messages == 20
    shutil.copy(path, tmp_path / "copy.mcap")
    assert lake.ingest([tmp_path / "copy.mcap", recording(tmp_path / "two.mcap", first=12)]).messages == 20
    lake.refresh()
    assert held(lake) == sorted(numbers(0, 10) + numbers(12, 22))
    assert listed(lake.table("gaps"), "endpoint", "lost") == [("a", 2), ("b", 2)]


def test_a_format_that_spark_does_not_have_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="'delta'"):
        Lake(spark, tmp_path / "lake", "delta").ingest([recording(tmp_path / "one.mcap")])


def ranges(random: Any, name: Any, count: Any) -> Any:
    """Return ranges of parts at random, that often meet, in one coordinate or both; some have a part in common."""
    sides = np.sort(random.integers(0, 40, (2, count, 2)), axis=2).tolist()
    keys = random.integers(0, 2, (count, 2)).tolist()
    return [
        {
            "part": f"{name}{i // 2}",
            "run": "r",
            "endpoint": "ab"[key],
            "epoch": epoch,
            "first_time": begin,
            "last_time": begin + (end - begin) // 4,
            "first_sequence": first,
            "last_sequence": first + (last - first) // 4,
            "rows": 1,
            "repeats": False,
        }
        for i, ((begin, end), (first, last), (key, epoch)) in enumerate(zip(*sides, keys, strict=True))
    ]


def do_meet(one: Any, other: Any) -> Any:
    sides = (("first_time", "last_time"), ("first_sequence", "last_sequence"))
    return all(one[name] == other[name] for name in ("run", "endpoint", "epoch")) and all(
        one[first] <= other[last] and other[first] <= one[last] for first, last in sides
    )


def test_parts_that_overlap_are_those_that_meet_one_by_one() -> None:
    random = np.random.default_rng(6)
    found = 0
    for _ in range(300):
        new, known = ranges(random, "n", int(random.integers(1, 12))), ranges(random, "k", int(random.integers(0, 12)))
        mine = {
            one["part"]
            for i, one in enumerate(new)
            if any(do_meet(one, other) for other in [*new[:i], *new[i + 1 :], *known])
        }
        theirs = {one["part"] for one in known if any(do_meet(one, other) for other in new)}
        assert overlapping(*(pa.Table.from_pylist(some, RANGES) for some in (new, known))) == (mine, theirs)
        found += len(mine) + len(theirs)
    assert found > 300, "there was something to find"

"""A lake holds each message once, whatever is ingested how often, and whoever dies meanwhile."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark.lake import Lake, follow
from tests.recording import logs
from tests.spark.deadline import DEADLINE
from tests.spark.rows import message, messages, sorted_rows
from tests.support import wait_until

DAY = 86_400_000_000_000


def recording(path: Path, first: int = 0, count: int = 10, topics: Any = ("a", "b"), start: int = 1000) -> Any:
    """Write a segment: `count` messages of each topic from this number on, a microsecond apart."""
    channels = [logs.channel(i + 1, topic) for i, topic in enumerate(topics)]
    sent = [
        logs.message(i + 1, number, start + 1000 * number + i, b"%d" % number)
        for number in range(first, first + count)
        for i in range(len(topics))
    ]
    return logs.write_unclosed_file(path, logs.build_chunk_record(*channels, *sent))


def message_numbers(lake: Lake) -> Any:
    return sorted_rows(lake.messages(), "endpoint", "sequence", "data")


def numbers(first: Any, end: Any, topics: str = "ab") -> Any:
    return [(topic, number, b"%d" % number) for topic in topics for number in range(first, end)]


def test_second_ingest_does_not_change_lake(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    recording(tmp_path / "000000.mcap")
    first = lake.ingest([tmp_path / "000000.mcap"])
    assert (first.messages, first.files, first.skipped) == (20, 1, 0)
    files = sorted((tmp_path / "lake" / "messages").rglob("*"))
    for paths in ([tmp_path / "000000.mcap"], tmp_path / "000000.mcap", str(tmp_path / "000000.mcap")):
        again = lake.ingest(paths)
        assert (again.messages, again.files, again.skipped) == (0, 0, 1)
    assert sorted((tmp_path / "lake" / "messages").rglob("*")) == files
    assert message_numbers(lake) == sorted(numbers(0, 10))


def test_consecutive_segments_are_ingested_without_message_comparison(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path / "lake")
    recording(tmp_path / "000000.mcap")
    lake.ingest([tmp_path])
    recording(tmp_path / "000001.mcap", first=10)
    monkeypatch.setattr("msgq.spark.spark_executor.tables.find_duplicates", None)
    done = lake.ingest([tmp_path / "000000.mcap", tmp_path / "000001.mcap"])
    assert (done.messages, done.files, done.skipped) == (20, 1, 1)
    assert message_numbers(lake) == sorted(numbers(0, 20))


def test_ingest_pieces_have_separate_tasks_without_overlap(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has two pieces which do not follow each other makes ranges that span what others have."""
    for name, size in (("_PARTITION_BYTES", 1), ("_PARTITION_BYTES_MIN", 1), ("_CHUNK_BYTES", 0)):
        monkeypatch.setattr(f"msgq.spark.source.source_options.{name}", size)
    monkeypatch.setattr("msgq.spark.spark_executor.tables.find_duplicates", None)
    for number in range(4):
        recording(tmp_path / f"{number}.mcap", first=10 * number)
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([tmp_path]).messages == 80
    assert len(list((tmp_path / "lake" / "messages").rglob("*.parquet"))) == 4


def test_ingest_of_copies_and_excerpts_adds_only_new_messages(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([recording(tmp_path / "one.mcap")])
    shutil.copy(tmp_path / "one.mcap", tmp_path / "copy.mcap")
    assert lake.ingest([tmp_path / "copy.mcap"]).messages == 0
    assert lake.ingest([recording(tmp_path / "cut.mcap", first=7, count=6)]).messages == 6
    both = [recording(tmp_path / "x.mcap", first=13, count=3), recording(tmp_path / "y.mcap", first=14, count=3)]
    assert lake.ingest(both).messages == 8
    assert message_numbers(lake) == sorted(numbers(0, 17))


def test_grown_file_is_ingested_without_duplicates(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    path = recording(tmp_path / "000000.mcap")
    lake.ingest([path])
    with path.open("ab") as file:
        late = [logs.message(1, number, 1000 + 1000 * number, b"%d" % number) for number in range(10, 15)]
        file.write(logs.build_chunk_record(logs.channel(1, "a"), *late))
    done = lake.ingest([path])
    assert (done.messages, done.files) == (5, 1)
    assert message_numbers(lake) == sorted(numbers(0, 10) + numbers(10, 15, "a"))


def test_duplicate_messages_in_file_count_once(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    twice = [logs.channel(1, "a"), *(logs.message(1, i // 2, 1000 + i // 2, b"x") for i in range(20))]
    assert (
        lake.ingest([logs.write_unclosed_file(tmp_path / "twice.mcap", logs.build_chunk_record(*twice))]).messages == 10
    )


def test_lake_partitions_messages_by_date_and_size(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    sent = [logs.message(1, 0, 5), logs.message(1, 1, DAY + 5), logs.message(1, 2, DAY + 6, b"x" * 70_000)]
    lake.ingest(
        [logs.write_unclosed_file(tmp_path / "days.mcap", logs.build_chunk_record(logs.channel(1, "a"), *sent))]
    )
    found = [
        (str(date), *rest)
        for date, *rest in sorted_rows(lake.messages(), "date", "size_class", "sequence", "size_bytes")
    ]
    assert found == [("1970-01-01", "small", 0, 4), ("1970-01-02", "large", 2, 70_000), ("1970-01-02", "small", 1, 4)]


def test_ingest_keeps_readable_messages_and_lists_read_errors(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    good = recording(tmp_path / "good.mcap")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(recording(tmp_path / "whole.mcap", first=10).read_bytes()[:-7])
    (tmp_path / "none.mcap").write_bytes(b"")
    done = lake.ingest([good, cut, tmp_path / "none.mcap"])
    assert done.messages == 20
    assert {row["file"] for row in lake.read_errors().collect()} == {str(cut), str(tmp_path / "none.mcap")}
    assert len(done.read_errors) == lake.read_errors().count()


def test_ingest_of_missing_path_raises_error(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist; use a file"):
        Lake(spark, tmp_path / "lake").ingest([tmp_path / "no"])
    with pytest.raises(InvalidValueError, match="ingest recordings first"):
        Lake(spark, tmp_path / "lake").table("sequence_gaps")
    assert Lake(spark, tmp_path / "lake").messages().count() == 0


def test_repeated_stream_batch_counts_once(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    rows = messages(spark, [message("a", i, i) for i in range(5)])
    assert [lake.append(rows), lake.append(rows)] == [5, 0]
    assert lake.messages().count() == 5


def test_appended_rows_without_run_or_epoch_are_treated_as_foreign(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    rows = messages(spark, [message("a", 0, 1, run=None, epoch=None, host=None, publish_time=None), message("a", 0, 1)])
    assert [lake.append(rows), lake.append(rows)] == [2, 0]
    assert sorted_rows(lake.messages(), "run", "epoch", "publish_time") == [("", 0, None), ("r", 1, 1)]
    assert lake.build_gold() == 2


@pytest.mark.parametrize("name", ["endpoint", "sequence", "log_time", "data"])
def test_append_error_names_wrong_columns_of_rows(spark: Any, tmp_path: Path, name: Any) -> None:
    lake = Lake(spark, tmp_path / "lake")
    with pytest.raises(InvalidValueError, match=f"column '{name}' is NULL in a row"):
        lake.append(messages(spark, [message("a", 0, 1), message("a", 1, 2) | {name: None}]))
    assert lake.messages().count() == 0


def test_gold_tables_include_newly_ingested_messages(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([recording(tmp_path / "one.mcap"), recording(tmp_path / "three.mcap", first=15)])
    assert lake.build_gold() == 1
    assert lake.build_gold() == 0
    assert sorted_rows(lake.table("sequence_gaps"), "endpoint", "lost") == [("a", 5), ("b", 5)]
    assert sorted_rows(lake.table("checks").where("check_name = 'lost'"), "endpoint", "passed") == [
        ("a", False),
        ("b", False),
    ]
    lake.ingest([recording(tmp_path / "two.mcap", first=10, count=5)])
    assert lake.build_gold() == 1
    assert sorted_rows(lake.table("sequence_gaps"), "endpoint", "lost") == []
    assert sorted_rows(lake.table("endpoints"), "endpoint", "messages", "lost") == [("a", 25, 0), ("b", 25, 0)]
    assert "endpoints" in lake.register()
    assert spark.sql("SELECT sum(messages) FROM endpoints").first()[0] == 50


def test_lake_path_may_have_any_characters(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "my lake [1] {a} ü%2*?")
    lake.ingest([recording(tmp_path / "one.mcap")])
    assert lake.ingest([recording(tmp_path / "two.mcap", first=5)]).messages == 10
    lake.build_gold()
    assert message_numbers(lake) == sorted(numbers(0, 15))
    assert sorted_rows(lake.table("endpoints"), "messages") == [(15,), (15,)]
    assert lake.build_silver() == 2


@pytest.mark.nightly
def test_restarted_stream_without_checkpoint_omits_no_message(spark: Any, tmp_path: Path) -> None:
    """Without its checkpoint a stream gives all again, in batches of the same numbers."""
    lake = Lake(spark, tmp_path / "lake")
    (tmp_path / "log").mkdir()
    for index in range(2):
        recording(tmp_path / "log" / f"{index:06}.mcap", 10 * index)
        query = follow(lake, str(tmp_path / "log"), str(tmp_path / "checkpoint"), trigger_seconds=None)
        assert query.awaitTermination(DEADLINE)
        shutil.rmtree(tmp_path / "checkpoint")
    assert message_numbers(lake) == sorted(numbers(0, 20))


def test_two_ingests_of_same_recording_add_each_message_once(spark: Any, tmp_path: Path) -> None:
    """Both have written all parts when they begin to commit."""
    path = recording(tmp_path / "one.mcap")
    both = threading.Barrier(2)
    lakes = [Lake(spark, tmp_path / "lake") for _ in range(2)]
    for lake in lakes:
        wait_for_other_lake(lake, both)
    with ThreadPoolExecutor() as threads:
        assert sorted(done.messages for done in threads.map(Lake.ingest, lakes, [[path], [path]])) == [0, 20]
    assert message_numbers(lakes[0]) == sorted(numbers(0, 10))
    ranges = lakes[0]._bronze.read_aggregates().read_rows("ranges").select(["endpoint", "row_count"]).to_pylist()
    assert sorted(map(tuple, map(dict.values, ranges))) == [("a", 10), ("b", 10)]


def test_two_ingests_of_different_recordings_add_all_messages(spark: Any, tmp_path: Path) -> None:
    """They overlap by half, and begin a lake."""
    paths = [recording(tmp_path / "one.mcap"), recording(tmp_path / "two.mcap", first=5)]
    both = threading.Barrier(2)
    lakes = [Lake(spark, tmp_path / "lake") for _ in range(2)]
    for lake in lakes:
        wait_for_other_lake(lake, both)
    with ThreadPoolExecutor() as threads:
        assert sum(done.messages for done in threads.map(Lake.ingest, lakes, [[path] for path in paths])) == 30
    assert message_numbers(lakes[0]) == sorted(numbers(0, 15))
    lakes[0].build_gold()
    assert sorted_rows(lakes[0].table("endpoints"), "endpoint", "messages") == [("a", 15), ("b", 15)]


def wait_for_other_lake(lake: Lake, others: threading.Barrier) -> None:
    """Let a lake wait for another one before it commits its first parts."""
    commit = lake._bronze._commit_bronze_files

    def wait(written: Any) -> Any:
        others.wait(DEADLINE)
        return commit(written)

    lake._bronze._commit_bronze_files = wait  # type: ignore[method-assign]


def test_lake_message_count_never_decreases_during_ingest_and_optimize(spark: Any, tmp_path: Path) -> None:
    """While recordings come, and while parts are put together and removed; nor does it see half of an ingest."""
    root = tmp_path / "lake"
    Lake(spark, root).ingest([recording(tmp_path / "0.mcap")])
    over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not over.is_set():
            seen.append(Lake(spark, root).messages().count())

    def ingest(index: int) -> None:
        """Ingest, and wait until the reader has all that there is."""
        Lake(spark, root).ingest([recording(tmp_path / f"{index}.mcap", first=10 * index)])
        wait_until(lambda: seen[-1:] == [20 + 20 * index] or reader.done(), deadline=DEADLINE)

    with ThreadPoolExecutor() as threads:
        reader = threads.submit(read)
        try:
            for index in range(1, 4):
                ingest(index)
            assert Lake(spark, root).optimize().files_after == 1
            ingest(4)
        finally:
            over.set()
        reader.result()
    assert seen == sorted(seen)
    assert {40, 60, 80, 100} <= set(seen) <= {20, 40, 60, 80, 100}
    assert message_numbers(Lake(spark, root)) == sorted(numbers(0, 50))


def test_optimize_keeps_all_messages_and_gold_tables(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    for index in range(3):
        lake.ingest([recording(tmp_path / f"{index}.mcap", first=12 * index)])
    lake.build_gold()
    before = {
        name: sorted_rows(lake.table(name), *lake.table(name).columns)
        for name in ("endpoints", "sequence_gaps", "throughput")
    }
    snapshot = lake.messages()
    done = lake.optimize()
    assert (done.files_before, done.files_after) == (3, 1)
    assert message_numbers(lake) == sorted(number for first in (0, 12, 24) for number in numbers(first, first + 10))
    for name, rows in before.items():
        assert sorted_rows(lake.table(name), *lake.table(name).columns) == rows
    assert snapshot.count() == 60, "who has looked before finds all of it"
    assert lake.ingest([recording(tmp_path / "3.mcap", first=30)]).messages == 12
    lake.optimize(retain_hours=0)
    files = [path for path in (tmp_path / "lake" / "messages").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == 1, "what nobody needs is gone"
    assert lake.messages().count() == 72


def test_lake_version_has_messages_that_were_stored_at_that_version(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    versions = []
    for index in range(3):
        versions.append(Lake(spark, root).ingest([recording(tmp_path / f"{index}.mcap", first=10 * index)]).version)
    for index, version in enumerate(versions):
        assert message_numbers(Lake(spark, root, version=version)) == sorted(numbers(0, 10 * (index + 1)))
    Lake(spark, root).optimize()
    assert message_numbers(Lake(spark, root, version=versions[1])) == sorted(numbers(0, 20))
    Lake(spark, root).optimize(retain_hours=0)
    with pytest.raises(RecordingError, match=f"version {versions[1]} of lake .* can no longer be read"):
        Lake(spark, root, version=versions[1]).messages()
    newest = LakeTable(LakeDirectory(root), "messages").log.read_newest_version()
    with pytest.raises(RecordingError, match=f"has no such version; its newest version is {newest}"):
        Lake(spark, root, version=99).messages()
    with pytest.raises(RecordingError, match="no version 0"):
        Lake(spark, tmp_path / "none", version=0).messages()


def test_duckdb_and_polars_count_same_messages(spark: Any, tmp_path: Path) -> None:
    """DuckDB and Polars, on a lake of which some files are of older versions, or of kills."""
    deltalake = pytest.importorskip("deltalake")
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    lake = Lake(spark, tmp_path / "lake")  # Polars takes a space in a path for %20
    for index in range(2):
        lake.ingest([recording(tmp_path / f"{index}.mcap", first=10 * index)])
    lake.optimize()
    part = next((tmp_path / "lake" / "messages").rglob("*.parquet"))
    shutil.copy(part, part.with_name("left.parquet"))
    place = str(tmp_path / "lake" / "messages")
    messages = deltalake.DeltaTable(place).to_pyarrow_dataset()
    assert messages is not None
    by_duckdb = duckdb.sql("SELECT endpoint, count(*), sum(sequence) FROM messages GROUP BY 1 ORDER BY 1").fetchall()
    grouped = polars.scan_delta(place).group_by("endpoint").agg(polars.len(), polars.col("sequence").sum())
    lake.register()
    by_spark = spark.sql("SELECT endpoint, count(*), sum(sequence) FROM messages GROUP BY 1").collect()
    assert by_duckdb == grouped.sort("endpoint").collect().rows() == sorted(map(tuple, by_spark))
    assert by_duckdb == [("a", 20, 190), ("b", 20, 190)]


def test_lake_reader_needs_no_write_permission(spark: Any, tmp_path: Path) -> None:
    """A lake that nobody may change: reading it changes nothing, not even what is hidden."""
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([recording(tmp_path / "one.mcap")])
    lake.build_silver()
    lake.build_gold()
    everything = sorted((tmp_path / "lake").rglob("*"))
    before = [(path, path.stat().st_mtime_ns) for path in everything]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    reader = Lake(spark, tmp_path / "lake")
    assert message_numbers(reader) == sorted(numbers(0, 10))
    assert reader.read_errors().count() == 0
    assert sorted_rows(reader.table("endpoints"), "endpoint", "messages") == [("a", 10), ("b", 10)]
    assert reader.endpoints() == []
    assert [(path, path.stat().st_mtime_ns) for path in sorted((tmp_path / "lake").rglob("*"))] == before
    for path in everything:
        path.chmod(0o755)

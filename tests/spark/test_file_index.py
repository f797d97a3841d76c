"""Frames of messages in programs: caches, joins, threads, streams, errors, and what stays behind."""

from __future__ import annotations

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from msgq.errors import RecordingError
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.spark.lake import Lake, file_index
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message
from tests.spark.scans import collect_rows
from tests.support import wait_until

FILES = 3


def add_files(root: Path, first: int, count: int) -> None:
    """Add bronze files. File N has messages of `aN` and `m` at the times 10 N and 10 N + 1."""
    lake, result = LakeDirectory(root), TaskResult()
    for number in range(first, first + count):
        rows = [message(f"a{number}", number, 10 * number), message("m", number, 10 * number + 1)]
        result.written_files.add_files(write_bronze([batch(rows)], lake))
    BronzeStore(lake, InPlaceExecutor()).commit_task_result([], [], result)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    where = tmp_path / "a lake #1 [x] ü"
    add_files(where, 0, FILES)
    return where


@pytest.fixture
def lake(session: Any, root: Path) -> Lake:
    return Lake(session, root)


def test_frame_has_version_of_its_call(lake: Lake, root: Path) -> None:
    before = lake.messages()
    add_files(root, FILES, 1)
    after = lake.messages()
    assert collect_rows(before.where("endpoint = 'm'"))[0] == FILES
    assert collect_rows(after.where("endpoint = 'm'"))[0] == FILES + 1
    assert (len(before.inputFiles()), len(after.inputFiles())) == (FILES, FILES + 1)


def test_frame_stays_readable_after_optimize(spark: Any, root: Path) -> None:
    lake = Lake(spark, root)
    before = lake.messages()
    assert lake.optimize().files_after == 1
    assert before.where("endpoint = 'a1'").count() == 1
    assert lake.messages().where("endpoint = 'a1'").count() == 1


def test_removed_file_is_named(lake: Lake, root: Path) -> None:
    rows = lake.messages()
    (path,) = [row["path"] for row in rows.where("endpoint = 'a1'").selectExpr("_metadata.file_path AS path").collect()]
    os.remove(root / "messages" / path.partition("/messages/")[2])
    assert rows.where("log_time >= 20").count() == 2
    with pytest.raises(Exception, match="FILE_NOT_EXIST") as error:
        rows.where("endpoint = 'a1'").count()
    assert Path(path).name in str(error.value)


def test_removed_file_of_old_version_is_reported(session: Any, root: Path) -> None:
    old = Lake(session, root).messages().where("endpoint = 'a1'").select("_metadata.file_path").first()
    add_files(root, FILES, 1)
    version = Lake(session, root)._bronze.read_version() - 1
    assert Lake(session, root, version).messages().count() == 2 * FILES
    table = Lake(session, root)._bronze.table
    snapshot = table.read_snapshot()
    assert old is not None
    assert snapshot is not None
    relative = old[0].partition("/messages/")[2]
    rows = batch([message("x", 9, 90)])
    (file,) = write_bronze([rows], LakeDirectory(root)).bronze_files
    table.commit_files(snapshot, snapshot.columns, [file], [relative])
    os.remove(root / "messages" / relative)
    with pytest.raises(RecordingError, match=f"version {version} .*can no longer be read"):
        Lake(session, root, version).messages()
    assert Lake(session, root, version).messages(start=20).count() == 2


def test_damaged_aggregates_cost_only_time(lake: Lake, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgq.lake.bronze.bronze_reader._UNCHECKED_FILES_MAX", 0)
    assert collect_rows(lake.messages().where("endpoint = 'a1' AND log_time < 15"))[0] == 1
    for file in root.glob("aggregates/*/ranges/*.parquet"):
        file.write_bytes(b"damaged")
    file_count, found = collect_rows(lake.messages().where("endpoint = 'a1' AND log_time < 15"))
    assert (file_count, len(found)) == (FILES, 1)


def test_equal_frames_share_cache(lake: Lake, root: Path) -> None:
    cached = lake.messages().cache()
    try:
        assert cached.count() == 2 * FILES
        plan = Lake(lake.spark, root).messages()._jdf.queryExecution().executedPlan().toString()
        assert "InMemoryTableScan" in plan
        assert cached.where("endpoint = 'a1'").count() == 1
        add_files(root, FILES, 1)
        assert lake.messages().count() == 2 * FILES + 2
    finally:
        cached.unpersist()


def test_plan_names_table_and_filters(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.messages().where("endpoint = 'a1'").explain(True)
    text = capsys.readouterr().out
    assert "PushedFilters: [IsNotNull(endpoint), EqualTo(endpoint,a1)]" in text
    assert "Location: " in text


def test_messages_can_be_appended_to_their_own_lake(spark: Any, root: Path) -> None:
    lake = Lake(spark, root)
    assert lake.append(lake.messages()) == 0
    shifted = lake.messages(endpoints=["m"]).selectExpr("*", "log_time + 1000 AS later").drop("log_time")
    assert lake.append(shifted.withColumnRenamed("later", "log_time")) == FILES
    assert lake.messages().count() == 3 * FILES


def test_frame_is_written_and_joined_in_plans_with_exchanges(spark: Any, root: Path, tmp_path: Path) -> None:
    rows = Lake(spark, root).messages()
    pairs = rows.alias("x").join(rows.alias("y"), "sequence").where("x.endpoint = 'm' AND y.endpoint = 'a1'")
    pairs.select("sequence").write.parquet(f"{tmp_path}/out")
    assert spark.read.parquet(f"{tmp_path}/out").collect() == [(1,)]
    small = spark.createDataFrame([("a2",)], ["endpoint"])
    assert rows.hint("broadcast").join(small, "endpoint").select("sequence").collect() == [(2,)]


def test_date_of_other_table_selects_files_while_query_runs(lake: Lake) -> None:
    lake.spark.sql("CREATE OR REPLACE TEMP VIEW days AS SELECT DATE '1970-01-01' + INT(id) AS day, id FROM range(9)")
    query = "SELECT count(*) FROM messages JOIN days ON date = day WHERE id % 2 = {remainder}"
    assert lake.sql(query.format(remainder=0)).collect() == [(2 * FILES,)]
    assert lake.sql(query.format(remainder=1)).collect() == [(0,)]


def test_many_threads_query_at_once(spark: Any, root: Path) -> None:
    rows = Lake(spark, root).messages()

    def count(number: int) -> int:
        wanted = f"a{number % FILES}"
        grouped = rows.where(rows["endpoint"] == wanted).groupBy("endpoint").count()
        return int(grouped.collect()[0]["count"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(8))) == [1] * 8


def test_batches_of_stream_query_messages(spark: Any, root: Path, tmp_path: Path) -> None:
    rows, found = Lake(spark, root).messages(), []
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()

    def add_batch(batch: Any, _: int) -> None:
        found.append(batch.join(rows, batch["value"] == rows["sequence"]).where("endpoint = 'm'").count())

    query = stream.writeStream.foreachBatch(add_batch).option("checkpointLocation", f"{tmp_path}/c").start()
    try:
        wait_until(lambda: found or query.exception())
    finally:
        query.stop()
    assert found[0] == 2


def test_queries_leave_no_threads_and_no_open_files(spark: Any, root: Path) -> None:
    rows = Lake(spark, root).messages().where("endpoint = 'm'").groupBy("endpoint").count()

    def query() -> int:
        rows.select("*").collect()
        return len(os.listdir("/proc/self/fd"))

    first = max(query() for _ in range(2))
    assert max(query() for _ in range(6)) <= first + 1


def test_snapshot_is_released_with_its_frames(spark: Any, root: Path) -> None:
    lake = Lake(spark, root)
    first, second = lake.messages(), lake.messages()
    assert first.where("endpoint = 'a1'").count() == second.where("endpoint = 'a1'").count() == 1
    snapshot = weakref.ref(lake._bronze.read_snapshot())
    indexes = [index for index in gc.get_objects() if type(index) is file_index.MessageFileIndex]
    assert sum(index._snapshot is snapshot() for index in indexes) == 2
    del first, second, lake, indexes

    def is_released() -> bool:
        spark._jvm.System.gc()
        gc.collect()
        return snapshot() is None

    wait_until(is_released, interval=0.05)

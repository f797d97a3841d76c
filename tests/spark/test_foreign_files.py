"""Files of others' writers, as tables and as streams: each message with its schema, whatever the summary leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from msgq.errors import RecordingError
from msgq.spark import read
from msgq.spark.source.source_options import SourceOptions
from tests.recording.conformance import Variant, variants, write_files
from tests.recording.logs import by_library, write_foreign
from tests.spark.deadline import DEADLINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ["endpoint", "data", "log_time", "publish_time", "sequence", "schema", "file"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("conformance"))


def by_file(table: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """Return the messages of each file, in the order of log_time."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in table.select(_COLUMNS).toLocalIterator():
        fields = (row.endpoint, bytes(row.data), row.log_time, row.publish_time, row.sequence, row.schema)
        found.setdefault(Path(row.file).stem, []).append(fields)
    return {name: sorted(messages) for name, messages in found.items()}


def write_variant(variant: Variant) -> list[tuple[Any, ...]]:
    """Return the messages of a file; a channel without a schema has its topic's name for one."""
    return sorted((*fields, schema[0] if schema else fields[0]) for *fields, schema in variant.messages())


def test_spark_batch_returns_all_messages_of_conformance_files(spark: SparkSession, folder: Path) -> None:
    expected = {variant.name: write_variant(variant) for variant in variants() if variant.of("Message")}
    assert by_file(read(spark, str(folder), columns=_COLUMNS)) == expected
    assert read(spark, str(folder), readErrors=True).count() == 0


@pytest.mark.nightly
def test_spark_stream_returns_all_messages_of_conformance_files(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("msgq").schema(read(spark, str(folder), columns=_COLUMNS).schema)
    query = stream.option("maxBytesPerTrigger", "4k").load(str(folder)).writeStream.trigger(availableNow=True)
    where = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "found")}
    assert query.format("parquet").options(**where).start().awaitTermination(DEADLINE)
    expected = {variant.name: write_variant(variant) for variant in variants() if variant.of("Message")}
    assert by_file(spark.read.parquet(where["path"])) == expected


def test_compressed_files_are_read_in_batch_and_refused_in_stream(spark: SparkSession, tmp_path: Path) -> None:
    plain = write_foreign(tmp_path / "plain")
    path = tmp_path / "a.mcap.zstd"
    path.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    table = read(spark, str(tmp_path), partitionBytes="1k")
    assert sorted((row.endpoint, bytes(row.data), row.log_time) for row in table.collect()) == sorted(by_library(plain))
    assert read(spark, str(tmp_path), readErrors=True).count() == 0
    stream = spark.readStream.format("msgq").load(str(tmp_path)).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="compressed as a whole"):
        query.awaitTermination(DEADLINE)


def test_spark_source_orders_files_by_number(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        write_foreign(tmp_path / f"bag_{number}.mcap", count=1)
    for paths in (str(tmp_path), f"{tmp_path}/*.mcap"):
        assert [path.name for path in SourceOptions((paths,)).list_files([])] == [
            "bag_1.mcap",
            "bag_9.mcap",
            "bag_10.mcap",
        ]


def test_sqlite_bag_read_error_names_converter(tmp_path: Path) -> None:
    (tmp_path / "a.db3").write_bytes(b"SQLite format 3\0" + bytes(100))
    problems: list[Any] = []
    assert SourceOptions((str(tmp_path),)).list_files(problems) == []
    assert any("rosbags-convert" in problem.reason for problem in problems)
    options = SourceOptions((str(tmp_path / "a.db3"),))
    with pytest.raises(RecordingError, match="rosbags-convert"):
        options.open_log(options.list_files(problems)[0])

"""Messages that are in several recordings: each is there once, and parts without find_duplicates stay as they are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.bronze.duplicate_messages import MESSAGE_KEYS_SCHEMA, read_message_keys, read_rows_except
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import INGEST_COLUMNS
from msgq.spark import tables
from msgq.spark.lake import Lake
from tests.recording import logs
from tests.spark.rows import message, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_rows(lake: LakeDirectory, *rows: dict[str, Any]) -> list[str]:
    """Write messages; return the parts."""
    known = [{"origin_time": None, "schema_id": None, **row} for row in rows]
    return [file.path for file in write_bronze([pa.RecordBatch.from_pylist(known, INGEST_COLUMNS)], lake).bronze_files]


def test_pictures_are_stored_in_small_row_groups(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    sizes = [1 << 20] * 40 + [12 << 20, 20 << 20] + [1 << 20] * 3
    (part,) = write_rows(lake, *(message("camera", i, i, data=bytes(size)) for i, size in enumerate(sizes)))
    file = pq.ParquetFile(tmp_path / "messages" / part)
    groups = [file.read_row_group(i, ["size_bytes"])["size_bytes"].to_pylist() for i in range(file.num_row_groups)]
    assert [size for group in groups for size in group] == sizes
    assert all(sum(group) <= 16 << 20 or len(group) == 1 for group in groups)
    assert len(groups) <= 9
    (part,) = write_rows(lake, *(message("imu", i, i, data=bytes(60_000)) for i in range(1000)))
    assert pq.ParquetFile(tmp_path / "messages" / part).num_row_groups == 1


def test_message_keys_contain_identity_only_for_rows_without_epoch(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    pictures = [message("camera", i, i, data=bytes([i]) * (5 << 20)) for i in range(5)]
    (part,) = write_rows(lake, *pictures)
    keys = pa.Table.from_batches(read_message_keys(lake, part, 7, is_committed=True), MESSAGE_KEYS_SCHEMA)
    assert keys["row_number"].to_pylist() == keys["log_time"].to_pylist() == [0, 1, 2, 3, 4]
    assert keys["identity"].null_count == 5, "epochs tell them apart, so that no payload is read"
    assert (set(keys["file_number"].to_pylist()), set(keys["is_committed"].to_pylist())) == ({7}, {True})
    kept = [row for batch in read_rows_except(lake, part, np.array([0, 2, 4])) for row in batch.to_pylist()]
    assert [(row["sequence"], row["data"][:1]) for row in kept] == [(1, b"\1"), (3, b"\3")]
    (part,) = write_rows(lake, *(message("a", 0, 9, epoch=0, data=data) for data in (b"x", b"y", b"x")))
    first, second, third = (
        row["identity"] for batch in read_message_keys(lake, part, 0, is_committed=False) for row in batch.to_pylist()
    )
    assert first == third != second


def test_duplicate_rows_are_selected(spark: SparkSession) -> None:
    def row(
        sequence: int, part: int, number: int, is_committed: bool = False, identity: bytes | None = None
    ) -> dict[str, Any]:
        key = {"run": "r", "endpoint": "a", "epoch": 1, "sequence": sequence, "log_time": 5}
        return {**key, "identity": identity, "is_committed": is_committed, "file_number": part, "row_number": number}

    rows = [
        row(1, 0, 0),
        row(2, 0, 1),
        row(2, 0, 2),
        row(3, 1, 0),
        row(3, 0, 3),
        row(4, 1, 1),
        row(4, 9, 0, is_committed=True),
    ]
    rows += [row(5, 0, 4, identity=b"x"), row(5, 1, 2, identity=b"y"), row(5, 1, 3, identity=b"y")]
    rows += [row(6, 9, 1, is_committed=True), row(6, 8, 1, is_committed=True)]
    found = tables.find_duplicates(spark.createDataFrame(pa.Table.from_pylist(rows, MESSAGE_KEYS_SCHEMA)))
    assert sorted_rows(found, "file_number", "row_number") == [(0, 2), (1, 0), (1, 1), (1, 3)]


@pytest.mark.nightly
def test_random_overlapping_recordings_count_messages_once(spark: SparkSession, tmp_path: Path) -> None:
    """Those of one run with epochs, and of a program that numbers nothing; in the order of any ingest."""
    dice = random.Random(5)
    sent = [
        (epoch, dice.randrange(50), dice.randrange(100), bytes([dice.randrange(3)]))
        for epoch in (0, 1, 2)
        for _ in range(80)
    ]
    sent = list(
        {(epoch, 0 if epoch == 0 else number, time, data if epoch == 0 else b"") for epoch, number, time, data in sent}
    )
    lake = Lake(spark, tmp_path / "lake")
    there: set[Any] = set()
    for number in range(5):
        some = [one for one in sent if dice.random() < 0.4]
        some += dice.choices(some, k=5)
        parts = [
            logs.build_chunk_record(
                logs.channel(1, "a", epoch=epoch),
                *(logs.message(1, sequence, time, data) for of, sequence, time, data in some if of == epoch),
            )
            for epoch in (0, 1, 2)
        ]
        path = logs.write_unclosed_file(tmp_path / f"{number}.mcap", *parts)
        assert lake.ingest([path]).messages == len(set(some) - there)
        there |= set(some)
    found = sorted_rows(lake.messages(), "epoch", "sequence", "log_time", "data")
    assert [(*row[:3], bytes(row[3])) for row in found] == sorted(there)


def test_part_with_overlapping_times_without_duplicates_is_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Only what has find_duplicates is written anew."""
    lake = Lake(spark, tmp_path / "lake")
    for number, sequences in enumerate(([0, 4, 8], [1, 5, 9], [5, 6])):
        sent = (logs.message(1, sequence, sequence) for sequence in sequences)
        lake.ingest(
            [
                logs.write_unclosed_file(
                    tmp_path / f"{number}.mcap", logs.build_chunk_record(logs.channel(1, "a"), *sent)
                )
            ]
        )
    snapshot = open_messages_table(LakeDirectory(lake.uri)).read_snapshot()
    assert snapshot is not None
    assert sorted(file.row_count for file in snapshot.files_by_path.values()) == [1, 3, 3]
    assert len(list((tmp_path / "lake" / "messages").rglob("*.parquet"))) == 3

"""A lake of 100,000 recordings or more, of which only the metadata exist that an ingest could read.

    python -m tools.distant_lake --recordings 100000

Most metadata are written without delta-rs, which needs 3 kB of memory for each bronze file: a checkpoint of `messages`
with all files, log entries of the last week, as `lake optimize` keeps them, the log of the ranges, and the list of
ingested files. The files of ranges exist only for the last day.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from msgq.lake.aggregate_store import RANGES_TABLE, AggregateStore, open_aggregate_table
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.bronze.ingest_log import IngestLog
from msgq.lake.data_file import DataFile, make_add_action
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.table_head import TableHead
from tools import metadata_lake
from tools.metadata_lake import Recording

_DAY_RECORDINGS = metadata_lake._RECORDINGS_PER_DAY
_KEPT_ENTRIES = 7 * _DAY_RECORDINGS
_OWN_NAME, _FIRST_TIME, _LAST_TIME = "@run@", 10**18 + 1, 10**18 + 2  # stand-ins in the template of statistics


def _make_statistics_template(template: DataFile) -> str:
    times = dict.fromkeys(("publish_time", "log_time", "origin_time"), (_FIRST_TIME, _LAST_TIME))
    names = {"run": (_OWN_NAME, _OWN_NAME), "endpoint": ("endpoint0", f"{_OWN_NAME}/status")}
    return str(make_add_action(replace(template, column_bounds={**template.column_bounds, **times, **names})).stats)


def _make_add_rows(recordings: list[Recording], statistics: str, size_bytes: int, kind: pa.StructType) -> pa.Array:
    """Return the entries of the recordings' bronze files for a checkpoint."""
    step = metadata_lake._RECORDING_NS // metadata_lake._BRONZE_FILES
    paths, texts, days = [], [], []
    for recording in recordings:
        of_run = statistics.replace(_OWN_NAME, recording.run)
        for index in range(metadata_lake._BRONZE_FILES):
            start = recording.start_time + index * step
            days.append(recording.day)
            paths.append(f"date={recording.day}/size_class=small/{os.urandom(16).hex()}.parquet")
            texts.append(of_run.replace(str(_FIRST_TIME), str(start)).replace(str(_LAST_TIME), str(start + step - 1)))
    count = len(paths)
    keys = pa.array(["date", "size_class"] * count)
    values = pa.array([value for day in days for value in (day, "small")])
    columns = {
        "path": pa.array(paths),
        "partitionValues": pa.MapArray.from_arrays(pa.array(range(0, 2 * count + 1, 2), pa.int32()), keys, values),
        "size": pa.repeat(pa.scalar(size_bytes), count),
        "modificationTime": pa.repeat(pa.scalar(recordings[0].start_time // 10**6), count),
        "dataChange": pa.repeat(pa.scalar(True), count),
        "stats": pa.array(texts),
    }
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type) for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _allow_nulls(kind: pa.DataType) -> pa.DataType:
    """Return a type whose fields may all be NULL: pyarrow refuses NULLs of structures with other fields."""
    if not pa.types.is_struct(kind):
        return kind
    return pa.struct([pa.field(field.name, _allow_nulls(field.type)) for field in kind])


def _iterate_days(count: int) -> Iterator[list[Recording]]:
    for first in range(0, count, _DAY_RECORDINGS):
        yield [Recording(number) for number in range(first, min(count, first + _DAY_RECORDINGS))]


def _write_checkpoint(messages: LakeTable, template: DataFile, count: int) -> None:
    """Write the checkpoint of the version that has the bronze files of all recordings."""
    log = Path(messages.resolve_file_path("_delta_log"))
    DeltaTable(log.parent).create_checkpoint()
    first = log / f"{0:020}.checkpoint.parquet"
    head = pq.read_table(first)
    schema = pa.schema([(field.name, _allow_nulls(field.type)) for field in head.schema])
    statistics = _make_statistics_template(template)
    target = log / f"{count:020}.checkpoint.parquet"
    with pq.ParquetWriter(target, schema) as writer:
        writer.write_table(pa.Table.from_pylist(head.to_pylist(), schema))
        for recordings in _iterate_days(count):
            rows = _make_add_rows(recordings, statistics, template.size_bytes, schema.field("add").type)
            columns = [rows if field.name == "add" else pa.nulls(len(rows), field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    files = count * metadata_lake._BRONZE_FILES
    hint = {"version": count, "size": files + head.num_rows, "sizeInBytes": target.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    first.unlink()


def _write_ranges_log(lake: LakeDirectory, template: DataFile, count: int) -> None:
    """Write the log of the ranges: a merged file for each day. Only the last file exists."""
    table = open_aggregate_table(lake, RANGES_TABLE)
    *_, last_day = _iterate_days(count)
    ranges = [recording.make_ranges(recording.describe_files(template)) for recording in last_day]
    file = table.write_file("merged-last.parquet", pa.concat_tables(ranges))
    for number, recordings in enumerate(_iterate_days(count)):
        runs, start = (recordings[0].run, recordings[-1].run), recordings[0].start_time
        end = recordings[-1].start_time + metadata_lake._RECORDING_NS
        times = dict.fromkeys(("start_time", "end_time"), (start, end))
        folder = f"date={recordings[0].day}/size_class=small"
        names = {"run": runs, "bronze_file": (f"{folder}/0", f"{folder}/g")}
        path = file.path if recordings[0] in last_day else f"merged-{number}.parquet"
        metadata_lake._write_log_entry(
            table, number + 1, [replace(file, path=path, column_bounds={**file.column_bounds, **names, **times})]
        )
    DeltaTable(table.resolve_file_path("")).create_checkpoint()


def add_distant_recordings(directory: Path, template: DataFile, count: int) -> None:
    """Create a lake with the metadata of recordings that an ingest could read."""
    lake = LakeDirectory(directory)
    messages, store = open_messages_table(lake), AggregateStore(lake)
    messages.commit_files(None, BRONZE_COLUMNS)
    store.commit_files({}, [])
    snapshot = messages.read_snapshot()
    head = None if snapshot is None else messages.log.make_head(snapshot)
    assert head is not None
    _write_checkpoint(messages, template, count)
    _write_ranges_log(lake, template, count)
    log = IngestLog(lake)
    for recordings in _iterate_days(count):
        log.record_inputs([file for recording in recordings for file in recording.list_inputs()], [])
    kept = range(max(0, count - _KEPT_ENTRIES), count)
    for number in kept:
        metadata_lake._write_log_entry(messages, number + 1, Recording(number).describe_files(template))
    entries = Path(messages.resolve_file_path("_delta_log"))
    (entries / f"{0:020}.json").unlink()
    digest = sha256((entries / f"{count:020}.json").read_bytes()).hexdigest()
    store.record_complete_version(TableHead(count, head.table_id, count, digest, head.column_names))


def main() -> None:
    """Print what an ingest of 10 recordings needs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recordings", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="directory for the metadata; default: a temporary directory")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="msgq-scale-", dir=options.directory))
    try:
        template, lake = metadata_lake.make_template(directory / "template"), directory / "lake"
        add_distant_recordings(lake, template, options.recordings)
        for ingest in range(3):
            first = options.recordings + ingest * metadata_lake.NEW_RECORDINGS
            seconds, megabytes = metadata_lake.measure_ingest(lake, template, first)
            print(f"{options.recordings:,} recordings: an ingest takes {seconds:.2f} CPU s and {megabytes:.0f} MB")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()

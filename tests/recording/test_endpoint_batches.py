"""Batches of one endpoint from logs with interleaved endpoints."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from msgq import Schema
from msgq.recording import LogReader, Writer
from msgq.recording.export import decoded_tables
from msgq.recording.reader import endpoint_batches
from msgq.recording.reader.arrow_batches import read_arrow_batches
from tests.recording.logs import struct_schema
from tests.recording.ros_messages import POINT, point_bytes

COLUMNS = ("log_time", "sequence", "data")
ROW_BYTES = 4 + 8 + 8 + 4  # channel, log_time, sequence, offset of the payload
_STRUCTS = [np.dtype([("n", "<i4")]), np.dtype([("n", "<f8"), ("y", "<i2", (2,))])]
_JSON = Schema("Number", "json")


def random_message(rng: random.Random) -> tuple[Schema | None, bytes]:
    """Return a message of any schema. Every fifth message is undecodable."""
    schema, payload = rng.choice(
        [
            (POINT, point_bytes(rng.randrange(100))),
            (_JSON, json.dumps({"n": rng.choice([1, 2.5]), "z": "text"}).encode()),
            *((struct_schema(dtype), bytes(dtype.itemsize * rng.randint(1, 3))) for dtype in _STRUCTS),
        ]
    )
    return schema, payload[: rng.randrange(len(payload))] if rng.random() < 0.2 else payload


def write_random_log(path: Path, rng: random.Random) -> None:
    """Write messages of endpoints with several schemas and epochs in random order, in small chunks."""
    with Writer(path, chunk_bytes=1024) as writer:
        channels: dict[tuple[str, int, Schema | None], int] = {}
        for i in range(600):
            schema, data = random_message(rng)
            key = f"e{int(rng.expovariate(0.3))}", rng.randrange(2), schema
            if key not in channels:
                channels[key] = writer.channel(key[0], schema, metadata={"epoch": str(key[1])})
            writer.write(channels[key], data, 1000 + i, sequence=i)


@pytest.mark.seeds(1, 6, 20)
def test_joined_batches_have_same_tables_as_each_endpoint(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    write_random_log(tmp_path / "a.mcap", rng)
    monkeypatch.setattr(endpoint_batches, "BATCH_ROWS_MAX", rng.choice([3, 10, 100]))
    monkeypatch.setattr(endpoint_batches, "_BATCH_BYTES_MAX", rng.choice([500, 5000]))
    monkeypatch.setattr(endpoint_batches, "_BUFFERED_BYTES_MAX", rng.choice([1000, 10_000, 1 << 20]))
    joined = defaultdict(list)
    for endpoint, batch in decoded_tables.decode_joined_batches(LogReader(tmp_path / "a.mcap").log_view):
        joined[endpoint].append(batch)
    monkeypatch.undo()
    log = LogReader(tmp_path / "a.mcap")
    assert set(joined) == set(log.endpoints)
    for endpoint, batches in joined.items():
        (whole,) = log.decoded_batches(endpoint)
        rows = decoded_tables.merge_arrow_tables([batch.rows for batch in batches])
        assert rows.select(whole.rows.column_names).to_pylist() == whole.rows.to_pylist()
        assert len(rows.column_names) == len(whole.rows.column_names)
        assert pa.concat_tables([batch.undecoded for batch in batches]).to_pylist() == whole.undecoded.to_pylist()
        assert sum(batch.messages for batch in batches) == whole.messages


@pytest.mark.seeds(1, 2, 5)
def test_parquet_export_of_interleaved_endpoints_reports_same_problems_as_each_endpoint(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_log(tmp_path / "a.mcap", random.Random(seed))
    log, each = LogReader(tmp_path / "a.mcap"), LogReader(tmp_path / "a.mcap")
    monkeypatch.setattr(endpoint_batches, "BATCH_ROWS_MAX", 5)
    monkeypatch.setattr(endpoint_batches, "_BUFFERED_BYTES_MAX", 1000)
    log.to_parquet(tmp_path / "tables")
    for endpoint in each.endpoints:
        each.to_arrow(endpoint)
    expected = {problem.reason.replace("omitted", "written to a separate file") for problem in each.problems}
    assert {problem.reason for problem in log.problems} == expected
    assert len(log.problems) == len(expected) > 0


def write_sized_log(path: Path, sizes: dict[str, int], count: int) -> LogReader:
    """Write one message of each endpoint in turn. `sizes`: bytes of the payloads."""
    with Writer(path, chunk_bytes=2000) as writer:
        channels = {endpoint: writer.channel(endpoint, None) for endpoint in sizes}
        for i in range(count):
            for endpoint, size in sizes.items():
                writer.write(channels[endpoint], bytes(size), i, sequence=i)
    return LogReader(path)


def test_endpoint_buffer_is_limited_and_counts_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_batches, "_BUFFERED_BYTES_MAX", 20_000)
    log = write_sized_log(tmp_path / "a.mcap", {f"e{i}": 40 for i in range(20)}, 200)
    buffer = endpoint_batches.EndpointBuffer(log.log_view)
    batches = list(read_arrow_batches(log.log_view, ["channel", *COLUMNS], 100))
    popped, buffered_rows, most = [], 0, 0
    for batch in batches:
        found = list(buffer.add_messages(batch))
        popped += found
        buffered_rows += batch.num_rows - sum(piece.num_rows for _, piece in found)
        assert buffer.buffered_bytes == buffered_rows * (40 + ROW_BYTES) <= 20_000
        most = max(most, buffer.buffered_bytes)
    assert most > 15_000
    popped += buffer.pop_endpoints()
    assert buffer.buffered_bytes == 0
    assert sum(batch.num_rows for _, batch in popped) == 20 * 200
    assert len(popped) * 3 < 20 * len(batches)  # each of the added batches has all endpoints
    for endpoint in log.endpoints:
        sequences = [s for name, batch in popped if name == endpoint for s in batch.column("sequence").to_pylist()]
        assert sequences == list(range(200))


def test_joined_batches_use_memory_of_their_own(tmp_path: Path) -> None:
    log = write_sized_log(tmp_path / "a.mcap", {"small": 1, "large": 1000}, 50)
    batches = dict(endpoint_batches.read_joined_batches(log.log_view, COLUMNS))
    assert {name: batch.num_rows for name, batch in batches.items()} == {"small": 50, "large": 50}
    assert batches["small"].get_total_buffer_size() < 50 * (1 + ROW_BYTES) + 1000


def test_endpoint_with_few_bytes_waits_while_others_are_yielded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_batches, "_BUFFERED_BYTES_MAX", 20_000)
    monkeypatch.setattr(endpoint_batches, "_BATCH_BYTES_MAX", 8000)
    log = write_sized_log(tmp_path / "a.mcap", {"small": 1, "large": 1000}, 100)
    batches = list(endpoint_batches.read_joined_batches(log.log_view, COLUMNS))
    assert [batch.num_rows for name, batch in batches if name == "small"] == [100]
    assert len(batches) > 10
    assert max(batch.nbytes for _, batch in batches) <= 8000


def test_endpoint_buffer_fills_batches_up_to_maximum_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_batches, "BATCH_ROWS_MAX", 25)
    log = write_sized_log(tmp_path / "a.mcap", {"a": 4, "b": 4}, 50)
    buffer = endpoint_batches.EndpointBuffer(log.log_view)
    for batch in read_arrow_batches(log.log_view, ["channel", *COLUMNS], 20):
        assert list(buffer.add_messages(batch)) == []
    row_counts = [(endpoint, batch.num_rows) for endpoint, batch in buffer.pop_endpoints()]
    assert row_counts == [("a", 20), ("a", 20), ("a", 10), ("b", 20), ("b", 20), ("b", 10)]

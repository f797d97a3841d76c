"""Origin times, from publishers that track them to the tree of hops."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("plotly")
import msgq
from msgq.lake.message_columns import MESSAGE_COLUMNS
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.recording import LogReader, Recorder
from msgq.spark.lake import Lake
from msgq.spark.source.arrow_batches import read_message_batches
from msgq.spark.source.origin_times import read_origin_times
from tests.recording.logs import struct_schema
from tests.spark.rows import sorted_rows
from tests.support import wait_until

STEP = np.dtype([("value", "<f8"), ("publish_time", "<i8"), ("origin_time", "<i8")])
SCHEMA = struct_schema(STEP)
CHAIN = ("camera", "model", "plan")
FRAMES = 20


def payloads(*values: Any) -> Any:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("kind", ["<i8", "<u8"])
def test_origin_times_are_read_as_column(kind: Any) -> None:
    dtype = np.dtype([("flag", "u1"), ("origin_time", kind)])
    schema = struct_schema(dtype)
    found = [np.array((1, time), dtype).tobytes() for time in (5, 0, 7)]
    data = payloads(b"before", found[0], b"short", *found[1:], found[0] * 2, b"")
    assert read_origin_times(schema, data.slice(1)).tolist() == [5, 0, 0, 7, 5, 0]


def test_null_and_large_payloads_are_read_like_others() -> None:
    schema = struct_schema(np.dtype([("origin_time", "<i8")]))
    data, offsets = np.array([5, 7], "<i8").tobytes(), np.array([0, 8, 16], np.int32).tobytes()
    second_is_null = pa.py_buffer(b"\x01"), pa.py_buffer(offsets), pa.py_buffer(data)
    behind_null = pa.BinaryArray.from_buffers(pa.binary(), 2, second_is_null)
    assert read_origin_times(schema, behind_null).tolist() == [5, 0]
    assert read_origin_times(schema, pa.array([data[:8], data[8:]], pa.large_binary())).tolist() == [5, 7]


def test_origin_field_behind_all_payloads_is_not_read() -> None:
    far: Any = {"names": ["origin_time"], "formats": ["<i8"], "offsets": [(1 << 31) - 9], "itemsize": (1 << 31) - 1}
    assert read_origin_times(struct_schema(np.dtype(far)), payloads(b"12345678")).tolist() == [0]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        msgq.Schema("a", "json"),
        msgq.Schema("a", "struct", b'"<i8"'),
        msgq.Schema("a", "struct", b"{"),
        msgq.Schema("a", "struct", b'[["origin_time", "<f8"]]'),
    ],
)
def test_schema_without_origin_field_has_no_origin_time(schema: Any) -> None:
    assert read_origin_times(schema, payloads(b"12345678")).tolist() == [0]


def drive(path: Path) -> None:
    """Record frames on their way from a camera through a model to a plan; an endpoint beside them tracks nothing."""
    pubs = {name: msgq.PubSocket() for name in CHAIN}
    for name, pub in pubs.items():
        pub.connect(msgq.context, name, schema=SCHEMA)
    beside = msgq.pub_sock("beside")
    subs = {name: msgq.sub_sock(name, timeout=10_000) for name in CHAIN[:-1]}
    with Recorder(path, chunk_seconds=0.02) as recorder:
        for _ in range(FRAMES):
            now = time.time_ns()
            pubs["camera"].send(np.array((0, now, now), STEP).tobytes())
            for before, after in pairwise(CHAIN):
                data = subs[before].receive()
                assert data is not None
                (cause,) = np.frombuffer(data, STEP)
                pubs[after].send(np.array((0, time.time_ns(), cause["origin_time"]), STEP).tobytes())
            beside.send(b"nobody knows")
        wait_until(lambda: recorder.stats().messages >= 4 * FRAMES)


def drive_tracked(path: Path) -> None:
    """Record the same on tracked topics, whose payloads say nothing."""
    pubs = {name: msgq.pub_sock(name, tracked=True) for name in CHAIN}
    beside = msgq.pub_sock("beside")
    subs = {name: msgq.sub_sock(name, timeout=10_000) for name in CHAIN[:-1]}
    with Recorder(path, chunk_seconds=0.02) as recorder:
        for _ in range(FRAMES):
            pubs["camera"].send(b"a picture")
            for before, after in pairwise(CHAIN):
                cause = subs[before].receive_tracked()
                assert cause is not None
                pubs[after].send(b"what comes of it", origin_time=cause.origin_time)
            beside.send(b"nobody knows")
        wait_until(lambda: recorder.stats().messages >= 4 * FRAMES)


@pytest.mark.parametrize("drive", [pytest.param(drive, marks=pytest.mark.nightly), drive_tracked])
def test_recorded_chain_gives_hop_tree(spark: Any, prefix: str, tmp_path: Path, drive: Any) -> None:
    drive(tmp_path / "log")
    log = LogReader(tmp_path / "log")
    columns = pa.schema([MESSAGE_COLUMNS.field(name) for name in ("endpoint", "publish_time", "origin_time")])
    rows = [row for batch in read_message_batches(log, columns) for row in batch.to_pylist()]
    assert {row["origin_time"] for row in rows if row["endpoint"] == "beside"} == {None}
    assert all(row["origin_time"] == row["publish_time"] for row in rows if row["endpoint"] == "camera")
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([tmp_path / "log"])
    lake.build_gold()
    found = sorted_rows(lake.table("hops"), "parent", "endpoint", "messages")
    assert found == [(None, "camera", FRAMES), ("camera", "model", FRAMES), ("model", "plan", FRAMES)]
    hop = lake.sql("SELECT p50, max, e2e_p50 FROM hops WHERE endpoint = 'plan'").first()
    assert hop is not None
    assert 0 < hop["p50"] <= hop["max"]
    assert hop["e2e_p50"] > hop["p50"]
    stamps = lake.sql("SELECT unix_micros(origin_timestamp) FROM messages WHERE endpoint = 'plan' ORDER BY 1").collect()
    assert [micros for (micros,) in stamps] == sorted(
        row["origin_time"] // 1000 for row in rows if row["endpoint"] == "plan"
    )
    write_report(open_lake_tables(lake.uri), tmp_path / "report.html")
    assert '"label":["camera","model","plan"]' in (tmp_path / "report.html").read_text()

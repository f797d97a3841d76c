"""Recordings of many endpoints with known trouble: the same bytes at each call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS, INGEST_COLUMNS
from msgq.recording import LogReader, Writer
from msgq.recording.mcap_io import metadata_keys
from msgq.spark.source.arrow_batches import read_message_batches
from tests.lake.golds import build_gold
from tests.report.gold import SECOND

RUN = "ab" * 16
BEGIN = int(datetime(2026, 5, 1, 22, 39, tzinfo=UTC).timestamp()) * SECOND  # not a whole hour
_RATES_HZ = (1, 2, 5, 10)
_LATE_NS = 50_000_000


class Trouble(NamedTuple):
    """Trouble of one endpoint. Times are seconds after the first message of the recording.

    `kind`: "latency" (each message 50 ms late), "dropout" or "loss" (every second message).
    """

    kind: str
    endpoint: str
    from_s: float
    to_s: float


#: The trouble of a recording of 300 endpoints and 300 s.
TROUBLES = (
    *(Trouble("latency", f"sensor/{17 + 50 * i:03}", 40 + 45 * i, 55 + 45 * i) for i in range(5)),
    *(Trouble("dropout", f"sensor/{31 + 50 * i:03}", 20 + 50 * i, 50 + 50 * i) for i in range(5)),
    *(Trouble("loss", f"sensor/{108 + 60 * i:03}", 100 + 60 * i, 120 + 60 * i) for i in range(3)),
)


def write_recording(path: Path, troubles: Sequence[Trouble] = (), endpoints: int = 300, seconds: int = 300) -> Path:
    """Write a recording of topics, each with 1 to 10 messages/s.

    Latencies have a long tail: the median is 0.1 to 0.4 ms, and single messages take 20 times as long. Every fourth
    endpoint sends at random times.
    """
    rng = np.random.default_rng(1)
    columns = []
    with Writer(path) as writer:
        writer.add_metadata(metadata_keys.RECORDING_METADATA, {"run": RUN, "host": "robot"})
        metadata = metadata_keys.build_channel_metadata(1, metadata_keys.PUBLISHER_SEQUENCE)
        for number in range(endpoints):
            name = f"sensor/{number:03}"
            channel = writer.channel(name, metadata=metadata)
            mine = [trouble for trouble in troubles if trouble.endpoint == name]
            columns.append(_make_endpoint_columns(rng, number, channel, seconds, mine))
        channels, published, logged, sequences = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        order = np.argsort(logged, kind="stable")
        payloads = sequences[order].astype("<i8").reshape(-1, 1)
        writer.write_columns(channels[order], payloads, logged[order], published[order], sequences[order])
    return path


def _make_endpoint_columns(
    rng: np.random.Generator, number: int, channel: int, seconds: int, troubles: Sequence[Trouble]
) -> tuple[np.ndarray, ...]:
    rate = _RATES_HZ[number % len(_RATES_HZ)] if number % 8 else 20
    count = rate * seconds
    times = rng.random(count) * seconds if number % 4 == 3 else (np.arange(count) + rng.random()) / rate
    times = np.sort(times)
    median = rng.uniform(1e5, 4e5)
    latency = median * rng.lognormal(0, 0.4, count) * np.where(rng.random(count) < 0.01, 20, 1)
    sequence, is_recorded = np.arange(count), np.ones(count, bool)
    for trouble in troubles:
        inside = (times >= trouble.from_s) & (times < trouble.to_s)
        if trouble.kind == "latency":
            latency[inside] = _LATE_NS + rng.uniform(-1e6, 1e6, int(inside.sum()))
        elif trouble.kind == "dropout":
            is_recorded &= ~inside
            sequence -= np.cumsum(inside)  # dropout is not a loss
        else:
            is_recorded &= ~inside | (sequence % 2 == 0)
    published = BEGIN + (times * SECOND).astype(np.int64)
    chosen = [published, published + latency.astype(np.int64), sequence]
    kept = [values[is_recorded] for values in chosen]
    return np.full(len(kept[0]), channel), *kept


def ingest_recording(recording: Path, lake: Path) -> Path:
    """Create a lake with gold from a recording, in this process instead of Spark."""
    directory = LakeDirectory(lake)
    batches = [
        pa.RecordBatch.from_arrays([batch.column(name) for name in INGEST_COLUMNS.names], schema=INGEST_COLUMNS)
        for batch in read_message_batches(LogReader(recording), INGEST_COLUMNS)
    ]
    written, messages = write_bronze(batches, directory), open_messages_table(directory)
    messages.commit_files(messages.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)
    AggregateStore(directory).commit_files(written.aggregate_files, [file.path for file in written.bronze_files])
    build_gold(lake)
    return lake

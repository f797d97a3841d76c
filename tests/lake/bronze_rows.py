"""Messages of all kinds at random, and lakes that have them, without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from msgq.common import timing
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS, INGEST_COLUMNS
from tests.spark.kind_logs import RecordedMessage, of_board, of_queue, of_vector, on_channel, random_history
from tests.unit.stage_children import timing_record

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
MIDNIGHT = 1_700_006_400 * SECOND  # midnight, and so the beginning of an hour
TURN = 1 << 32
PNG = b"\x89PNG\r\n\x1a\n"
Row = dict[str, Any]


def row(said: RecordedMessage, run: str = "r") -> Row:
    """Return the row of bronze of a message."""
    schema = said.schema
    return {
        "run": run,
        "host": "h",
        "endpoint": said.endpoint,
        "epoch": said.epoch,
        "sequence": said.sequence,
        "publish_time": said.publish_time,
        "log_time": said.log_time,
        "origin_time": said.origin_time or None,
        "encoding": schema.encoding if schema else "",
        "schema": schema.name if schema else None,
        "data": said.data,
        "kind": said.source.kind,
        "publisher": said.source.publisher or None,
        "key": said.source.key or None,
    }


def some_topics(rng: random.Random, begin: int) -> list[RecordedMessage]:
    """Return what some topics and a channel said: losses, numbers that come again, messages out of order, epochs, a
    sequence that wraps, pauses, publish times that nobody knows, or are ahead, and pictures.
    """
    said = []
    for name in ("a", "b", "channel/c"):
        for epoch in range(1, rng.choice((2, 3))):
            number, time = rng.choice((0, TURN - 9)), begin + rng.randrange(HOUR)
            step = rng.choice((SECOND // 90, SECOND // 7, SECOND, 50 * SECOND))
            for _ in range(rng.choice((1, 30, 200))):
                number += rng.choice((1, 1, 1, 1, 1, 1, 1, 0, 2, 70_000))
                time += rng.choice((step, step, step, step, 9 * step))
                at = time + rng.choice((0, 0, 0, 3 * step))
                published = rng.choice((None, at, at - rng.randrange(1, 10**7), at - 10, at + 5))
                data = rng.choice((b"", PNG, bytes(rng.randrange(40))))
                message = RecordedMessage(name, number % TURN, at, data, epoch=epoch, publish_time=published)
                if name.startswith("channel"):
                    source = on_channel("c", rng.choice(("one", "two")), 0, 0).source
                    message = message._replace(source=source, origin_time=at - rng.randrange(40) * 1000)
                said.append(message)
    return said


def some_kinds(rng: random.Random, begin: int) -> list[RecordedMessage]:
    """Return what others said: state, stages, the events of a queue, and chains of messages with one origin."""
    said, count, time = [], 0, begin
    for number in range(rng.choice((1, 40))):
        count, time = count + rng.choice((1, 1, 3)), time + rng.choice((SECOND, 200 * SECOND))
        state = [of_vector("v", number, time, number % 2, count), of_board("b", "k", count, time, 7)]
        said += [message._replace(publish_time=time - HOUR) for message in state]
        data = rng.choice((b"short", timing_record(time - 90, time - 70, time - rng.randrange(60), time - 100)))
        said.append(RecordedMessage(timing.make_timing_topic("plan", "x/y"), number, time, data))
        origin = begin + HOUR - 3 * SECOND + number * SECOND
        for name in rng.sample(("camera", "model", "plan"), 3):
            at = origin + rng.randrange(10 * SECOND)
            said.append(RecordedMessage(name, number, at + 9, b"", publish_time=at, origin_time=origin))
    history = random_history(rng, rng.choice((0, 60)))
    moved = [
        message._replace(
            time=message.time - history.events[0].time + begin + 3500 * SECOND,
            sent_time=message.sent_time and message.sent_time - history.events[0].time + begin + 3500 * SECOND,
            taken_time=message.taken_time and message.taken_time - history.events[0].time + begin + 3500 * SECOND,
        )
        for message in history.events
    ]
    return said + of_queue("jobs", moved)


def some_rows(rng: random.Random) -> list[Row]:
    """Return the messages of two runs, about midnight, each once."""
    rows = []
    for run in ("r", "s"):
        begin = MIDNIGHT - rng.choice((HOUR // 2, HOUR, 5 * HOUR))
        said = some_topics(rng, begin) + (some_kinds(rng, begin) if run == "r" else [])
        rows += [row(message, run) for message in said]
    return list(
        {
            (message["run"], message["endpoint"], message["epoch"], message["sequence"], message["log_time"]): message
            for message in rows
        }.values()
    )


def pieces(rng: random.Random, rows: Sequence[Row], count: int) -> list[list[Row]]:
    """Return rows in pieces: by their time, but for some that are in another one."""
    ordered = sorted(rows, key=lambda row: row["log_time"])
    size = -(-len(ordered) // count)
    pieces = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    for piece in pieces:
        for _ in range(min(5, len(piece) - 1)):
            rng.choice(pieces).append(piece.pop(rng.randrange(len(piece))))
    rng.shuffle(pieces)
    return pieces


def directory(path: Path) -> LakeDirectory:
    return LakeDirectory(path)


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), INGEST_COLUMNS)


def add(lake: LakeDirectory, rows: Iterable[Row], batch_rows: int | None = None) -> None:
    """Add a piece to a lake, as an ingest does. `batch_rows`: most rows of the batches that are written."""
    written = write_bronze(table(rows).to_batches(batch_rows), lake)
    messages = open_messages_table(lake)
    messages.commit_files(messages.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)
    AggregateStore(lake).commit_files(written.aggregate_files, [file.path for file in written.bronze_files])

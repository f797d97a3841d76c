"""Events of queues as Arrow values, and read_fixed_headers of payloads of any size; without a Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from msgq.common.queue_events import EVENT_ENCODING, EVENT_HEAD_BYTES, QUEUE_EVENT_SCHEMA, Event
from msgq.common.schema import Schema
from msgq.decoding.column_decoder import ColumnDecoder
from msgq.decoding.fixed_headers import read_fixed_headers
from msgq.lake.report import report_plots as plots
from msgq.spark.source.data_source import RecordingSource
from tests.spark.kind_logs import BEGIN, QueueEvent, of_queue, random_history, write_kinds

PAIR = np.dtype([("a", "<u2"), ("b", "|u1")])


@pytest.mark.parametrize("sizes", [[], [0], [2], [3], [3, 3], [3, 0, 9, 2, 3, None, 5], [None]])
@pytest.mark.parametrize("cut", [0, 1])
def test_fixed_headers_are_read_only_from_long_enough_payloads(sizes: list[int | None], cut: int) -> None:
    rng = random.Random(1)
    payloads = [None if size is None else rng.randbytes(size) for size in sizes]
    whole, found = read_fixed_headers(pa.array(payloads, pa.binary()).slice(cut), PAIR)
    long = [one for one in payloads[cut:] if one is not None and len(one) >= 3]
    assert whole.tolist() == [one is not None and len(one) >= 3 for one in payloads[cut:]]
    assert found.tolist() == [(int.from_bytes(one[:2], "little"), one[2]) for one in long]
    large, same = read_fixed_headers(pa.array(payloads, pa.large_binary()).slice(cut), PAIR)
    assert (large.tolist(), same.tolist()) == (whole.tolist(), found.tolist())


def decode_events(value: pa.DataType | None, schema: Schema, *payloads: bytes) -> list[tuple[int, Any, Any]]:
    """Return of each payload its row, value and reason."""
    found = []
    for values in ColumnDecoder(value).decode_values(schema, pa.array(payloads, pa.binary())):
        rows = range(len(values.value_column)) if values.message_rows is None else values.message_rows.tolist()
        reasons = (
            [None] * len(values.value_column) if values.failure_reasons is None else values.failure_reasons.to_pylist()
        )
        found += list(zip(rows, values.value_column.to_pylist(), reasons, strict=True))
    return sorted(found, key=lambda row: row[0])


def test_queue_event_has_fields_name_and_payload() -> None:
    history = random_history(random.Random(2), 300).events
    payloads = [one.data(b"x" * (number % 4)) for number, one in enumerate(history)]
    rows = decode_events(None, QUEUE_EVENT_SCHEMA, *payloads)
    assert {one.event for one in history} == set(Event)
    for (number, value, reason), one in zip(rows, history, strict=True):
        assert reason is None
        assert value == {
            "event": one.event.name.lower(),
            "handle": one.row,
            "priority": one.priority,
            "deliveries": one.deliveries,
            "number": one.number,
            "publish_time": one.time,
            "sent_time": one.sent_time,
            "taken_time": one.taken_time,
            "size": one.size,
            "pid": one.pid,
            "payload": b"x" * (number % 4),
        }


def test_invalid_queue_event_has_reason() -> None:
    good = QueueEvent(Event.SENT, 3, BEGIN).data(b"do")
    bad = [b"", good[: EVENT_HEAD_BYTES - 1], bytes([0]) + good[1:], bytes([7]) + good[1:]]
    rows = decode_events(None, QUEUE_EVENT_SCHEMA, *bad[:2], good, *bad[2:])
    assert [reason for _, _, reason in rows] == [
        *["message is not a queue event"] * 2,
        None,
        *["message is not a queue event"] * 2,
    ]
    assert rows[2][1]["payload"] == b"do"
    assert [value for _, value, reason in rows if reason] == [None] * 4
    other = Schema("QueueEvent", EVENT_ENCODING, b'[["event", "|u1"]]')
    assert decode_events(None, other, good) == [
        (0, None, "its schema describes a head of events that this release does not know")
    ]
    assert decode_events(None, Schema("QueueEvent", EVENT_ENCODING), good)[0][1]["number"] == 3, (
        "without a text it is this one"
    )


def test_queue_events_are_decoded_to_requested_type() -> None:
    data = QueueEvent(Event.RETURNED, 3, BEGIN).data()
    wanted = pa.struct([("number", pa.int64()), ("event", pa.string()), ("missing", pa.int32())])
    assert decode_events(wanted, QUEUE_EVENT_SCHEMA, data)[0][1] == {"number": 3, "event": "returned", "missing": None}
    assert '"event": "returned"' in decode_events(pa.string(), QUEUE_EVENT_SCHEMA, data)[0][1]


def test_spark_source_has_queue_event_columns(tmp_path: Path) -> None:
    path = write_kinds(tmp_path / "a.mcap", of_queue("jobs", [QueueEvent(Event.SENT, 1, BEGIN, publisher="boss")]))
    source = RecordingSource({"path": str(path), "decode": "queue/jobs"})
    reader = source.reader(source.schema())
    (row,) = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert (row["value"]["event"], row["publisher"], row["kind"], row["key"]) == ("sent", "boss", "queue", None)


def test_queue_plots_have_line_for_each_queue() -> None:
    figures = dict.fromkeys(("queue_time_p50", "queue_time_p99", "processing_time_p50", "processing_time_p99"), 2000)
    rows = [
        {"queue": queue, "step": BEGIN, "backlog": 3, **figures, "processing_time_p99": None} for queue in ("a", "b")
    ]
    drawn = plots.plot_queue_times(rows)
    assert drawn is not None
    assert all(f'"name":"{queue} {name.replace("_", " ")}"' in drawn for queue in "ab" for name in figures)
    assert (plots.plot_backlogs(rows) or "").count('"shape":"hv"') == 2
    assert (plots.plot_queue_times([]), plots.plot_backlogs([])) == (None, None)

"""One JSON of decoded values: every encoding, by every way that a value takes to a user, gives the same text."""

from __future__ import annotations

import csv
import datetime
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

import msgq
from msgq.common.schema import Schema
from msgq.decoding.json_values import convert_to_json, format_json_text
from tests.command import run, start
from tests.recording.logs import struct_schema, write_log

Types = descriptor_pb2.FieldDescriptorProto
TIME = datetime.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)
SECONDS = int(TIME.timestamp())
LARGE = 2**53 + 1
DTYPE = np.dtype(
    [("large", "<u8"), ("bad", "<f8"), ("blob", "V2"), ("axes", "<f4", (2, 2)), ("at", "<M8[us]"), ("text", "<U3")]
)
ROW = (LARGE, math.nan, b"\xff\0", [[0, 0.5], [1, 2]], np.datetime64("2026-01-31T12:00:00.000005"), "é")


def sample_files() -> descriptor_pb2.FileDescriptorSet:
    """Return files.Sample: what JSON has no own kind of."""
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="files", syntax="proto3")
    file.dependency.append(times.name)
    names = file.enum_type.add(name="Color").value
    names.add(name="RED", number=0)
    names.add(name="BLUE", number=1)
    kind = file.message_type.add(name="Sample")
    entry = kind.nested_type.add(name="SeenEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=Types.TYPE_BOOL, label=Types.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Types.TYPE_ENUM, type_name=".files.Color", label=Types.LABEL_OPTIONAL)
    kind.field.add(name="large_count", number=1, type=Types.TYPE_INT64, label=Types.LABEL_OPTIONAL)
    kind.field.add(name="bad", number=2, type=Types.TYPE_DOUBLE, label=Types.LABEL_REPEATED)
    kind.field.add(name="blob", number=3, type=Types.TYPE_BYTES, label=Types.LABEL_OPTIONAL)
    kind.field.add(name="colors", number=4, type=Types.TYPE_ENUM, type_name=".files.Color", label=Types.LABEL_REPEATED)
    kind.field.add(
        name="at",
        number=5,
        type=Types.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Types.LABEL_OPTIONAL,
    )
    kind.field.add(
        name="seen", number=6, type=Types.TYPE_MESSAGE, type_name=".files.Sample.SeenEntry", label=Types.LABEL_REPEATED
    )
    kind.field.add(name="unset", number=7, type=Types.TYPE_STRING, label=Types.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file, times])


def sample() -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(sample_files().file):
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("files.Sample"))(
        large_count=LARGE,
        bad=[math.nan, math.inf, -math.inf],
        blob=b"\xff\0",
        colors=[1, 7],
        at={"seconds": SECONDS, "nanos": 5006},
        seen={True: 1},
    )
    data: bytes = made.SerializeToString()
    return data


#: Schema, payload, and the JSON of it.
SAMPLES: dict[str, tuple[Schema, bytes, str]] = {
    "json": (
        Schema("s", "json"),
        b'{"large": 9007199254740993, "bad": [NaN, Infinity, -1e999], "half": "\\ud800", "e": "\xc3\xa9"}',
        '{"large": 9007199254740993, "bad": ["NaN", "Infinity", "-Infinity"], "half": "\\ud800", "e": "\\u00e9"}',
    ),
    "msgpack": (
        Schema("s", "msgpack"),
        msgpack.packb(
            {
                3: LARGE,
                True: math.nan,
                None: b"\xff\0",
                b"\xff": msgpack.Timestamp(5, 6),
                1.5: msgpack.ExtType(5, b"\xff\0"),
            }
        ),
        '{"3": 9007199254740993, "true": "NaN", "null": "/wA=", "/w==": "Timestamp(seconds=5, nanoseconds=6)", '
        '"1.5": [5, "/wA="]}',
    ),
    "cbor": (
        Schema("s", "cbor"),
        cbor2.dumps({"at": TIME, "blob": b"\xff\0", "large": 2**100, "bad": -math.inf, (1, 2): None, 4: True}),
        '{"at": "2026-01-31 12:00:00.000005+00:00", "blob": "/wA=", "large": 1267650600228229401496703205376, '
        '"bad": "-Infinity", "[1, 2]": null, "4": true}',
    ),
    "struct": (
        struct_schema(DTYPE),
        np.array([ROW], DTYPE).tobytes(),
        '{"large": 9007199254740993, "bad": "NaN", "blob": "/wA=", "axes": [[0.0, 0.5], [1.0, 2.0]], '
        '"at": "2026-01-31 12:00:00.000005", "text": "\\u00e9"}',
    ),
    "structs": (struct_schema(np.dtype([("n", "<u2")])), b"\1\0\2\0", '[{"n": 1}, {"n": 2}]'),
    "protobuf": (
        Schema("files.Sample", "protobuf", sample_files().SerializeToString()),
        sample(),
        '{"large_count": 9007199254740993, "bad": ["NaN", "Infinity", "-Infinity"], "blob": "/wA=", '
        '"colors": ["BLUE", 7], "at": "2026-01-31 12:00:00.000005006+00:00", "seen": {"true": "BLUE"}}',
    ),
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with one message of each."""
    messages = [(name, time, data) for time, (name, (_, data, _)) in enumerate(SAMPLES.items(), 1)]
    schemas = {name: schema for name, (schema, _, _) in SAMPLES.items()}
    return write_log(tmp_path / "samples.mcap", *messages, schemas=schemas)


def by_jsonl(log: Path) -> dict[str, str]:
    lines = log.with_suffix(".jsonl")
    run("bag", "convert", log, "-o", lines)
    return {
        json.loads(line)["endpoint"]: line.partition('"value": ')[2][:-1] for line in lines.read_text().splitlines()
    }


def by_csv(log: Path) -> dict[str, str]:
    table = log.with_suffix(".csv")
    run("bag", "convert", log, "-o", table)
    with table.open(newline="") as file:
        return {row["endpoint"]: row["value"] for row in csv.DictReader(file)}


def by_diff(log: Path) -> dict[str, str]:
    """Return what is told of a message that only one side has."""
    other = write_log(log.with_name("other.mcap"), ("other", 1, b""))
    texts = {}
    for name in SAMPLES:
        line = run("bag", "diff", log, other, "--endpoint", name, "--json", code=1).stdout
        texts[name] = line.partition('"first": ')[2].partition('"a": ')[2].partition(', "b": null')[0]
    return texts


def by_spark(log: Path) -> dict[str, str]:
    """Return what is in a column of texts, where each element of several is in a row of its own."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from msgq.decoding.column_decoder import ColumnDecoder

    found = {}
    for name, (schema, data, _) in SAMPLES.items():
        (values,) = ColumnDecoder(pa.string()).decode_values(schema, pa.array([data]))
        rows = values.value_column.to_pylist()
        found[name] = rows[0] if values.element_indexes is None else f"[{', '.join(rows)}]"
    return found


def by_echo(log: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with ExitStack() as stack:
        publishers = []
        for name, (schema, data, _) in SAMPLES.items():
            publishers.append((stack.enter_context(msgq.PubSocket()), data))
            publishers[-1][0].connect(msgq.context, name, schema=schema)
        process = stack.enter_context(start("echo", *SAMPLES, "--json", "-n", len(SAMPLES)))
        process.wait_opened(*(f"/{name}" for name in SAMPLES))
        for socket, data in publishers:
            socket.send(data)
        for line in process.communicate()[0].splitlines():
            found[json.loads(line)["endpoint"]] = line.rstrip("\n").partition('"value": ')[2][:-1]
    return found


@pytest.mark.parametrize("texts", [by_jsonl, by_csv, by_diff, by_spark, by_echo])
def test_all_json_outputs_give_same_text(log: Path, prefix: str, texts: Callable[[Path], dict[str, str]]) -> None:
    assert texts(log) == {name: text for name, (_, _, text) in SAMPLES.items()}


def test_query_results_follow_json_rules() -> None:
    row = {"data": bytearray(b"\xff\0"), "inner": {"at": TIME, "blob": bytearray(b"\xff\0")}, "n": Decimal(2**64)}
    assert convert_to_json(row) == {
        "data": "/wA=",
        "inner": {"at": "2026-01-31 12:00:00.000005+00:00", "blob": "/wA="},
        "n": "18446744073709551616",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), '"2026-01-31 00:00:00+00:00"'),
        (timestamp_pb2.Timestamp(), '"1970-01-01 00:00:00+00:00"'),
        (timestamp_pb2.Timestamp(seconds=-1, nanos=999_999_999), '"1969-12-31 23:59:59.999999999+00:00"'),
        (timestamp_pb2.Timestamp(seconds=2**62), f'{{"seconds": {2**62}}}'),
        (timestamp_pb2.Timestamp(seconds=1, nanos=-1), '{"seconds": 1, "nanos": -1}'),
        (np.datetime64("2026-01-31T00:00:00", "ns"), "1769817600000000000"),
        (np.datetime64("NaT", "s"), "null"),
        (np.longdouble(0.5), '"0.5"'),
        (np.array(5), "5"),
        (np.bool_(True), "true"),
        (1 + 2j, '"(1+2j)"'),
        (cbor2.CBORTag(4711, [1]), '"CBORTag(4711, [1])"'),
        (2**2048 - 1, str(2**2048 - 1)),
    ],
    ids=str,
)
def test_values_without_json_type_have_defined_text(value: Any, text: str) -> None:
    assert format_json_text(value) == text


@pytest.mark.parametrize(
    ("value", "why"), [(2**2048, "2049 bits"), ({1: "a", "1": "b"}, "two keys that are both written as '1'")]
)
def test_unsupported_json_value_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        convert_to_json(value)

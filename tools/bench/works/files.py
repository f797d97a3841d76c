"""Files of messages for the rows of files."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.recording import Writer
from tools.bench.job import Job
from tools.bench.works import make_once

TYPE, DEFINITION = "std_msgs/msg/String", "string data"
_DISTINCT_PAYLOAD_BYTES = 8 << 20
_DISTINCT = 100  # payloads of other kinds, which are repeated
_STRUCT = np.dtype([("t", "<i8"), ("x", "<f8"), ("v", "<f4", (6,))])


def make_texts(size: int, count: int) -> np.ndarray:
    """Return texts in CDR, half of whose bytes are noise: compressible as telemetry is."""
    rows = np.full((min(count, _DISTINCT_PAYLOAD_BYTES // size), size), ord("x"), np.uint8)
    rows[:, 8 : size // 2] = np.random.default_rng(1).integers(32, 127, (len(rows), size // 2 - 8), np.uint8)
    rows[:, :4] = (0, 1, 0, 0)
    rows[:, 4:8] = np.frombuffer(np.uint32(size - 8).tobytes(), np.uint8)
    rows[:, -1] = 0
    return rows


def make_file(job: Job) -> Path:
    """Return a file of the case's kind of messages, which belong to its endpoints in turn."""
    case = job.case
    kind, _, own_schemas = case.kind.partition("_")

    def write(path: Path) -> None:
        schema, payloads = _make_messages(kind, case.size)
        schemas = [schema] * case.endpoints
        if own_schemas:
            schemas = [replace(schema, data=schema.data + b"\n# %d" % number) for number in range(case.endpoints)]
        write_file(path, payloads, case.messages, schemas, "zstd" if kind == "text" else "none")

    return make_once(job, f"{case.kind}-{case.size}-{case.endpoints}-{case.messages}.mcap", write)


def _make_messages(kind: str, size: int) -> tuple[Schema, list[bytes]]:
    if kind == "text":
        return Schema(TYPE, "cdr", DEFINITION.encode()), [row.tobytes() for row in make_texts(size, 1000)]
    if kind == "struct":
        return struct_schema(_STRUCT), [np.zeros(1, _STRUCT).tobytes()]
    if kind == "json":
        values = [{"t": i, "x": i / 3, "name": "joint", "v": [1, 2, 3]} for i in range(_DISTINCT)]
        return Schema("J", "json"), [json.dumps(value).encode() for value in values]
    from tools.bench.works import ros

    return ros.make_schema(kind), ros.make_messages(kind, _DISTINCT)


def write_file(
    path: Path, payloads: Sequence[bytes], count: int, schemas: Sequence[Schema], compression: str = "zstd"
) -> None:
    """Write so many messages on endpoints with these schemas. The payloads are repeated."""
    with Writer(path, profile="ros2", compression=compression) as writer:
        channels = [writer.channel(f"/e{number}", schema) for number, schema in enumerate(schemas)]
        for number in range(count):
            payload = payloads[number % len(payloads)]
            writer.write(channels[number % len(channels)], payload, 1000 * number)

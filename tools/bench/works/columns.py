"""Tables of decoded messages, beside the libraries that decode ROS 2.

A file has the messages of one endpoint, or of many interleaved endpoints.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.recording import LogReader
from msgq.recording.export.decoded_tables import decode_joined_batches
from tools.bench.adapters import OURS
from tools.bench.job import Job
from tools.bench.roles import require
from tools.bench.works import Step, make_once, ros
from tools.bench.works.files import write_file

_DISTINCT = 100  # payloads, which are repeated
_STRUCT = np.dtype([("t", "<i8"), ("x", "<f8"), ("v", "<f4", (6,))])


def read_columns(job: Job) -> Step:
    """Decode batches to columns."""
    return _read(job, {OURS: lambda path: sum(batch.messages for batch in LogReader(path).decoded_batches("/e0"))})


def read_arrow(job: Job) -> Step:
    """Decode all messages to one table."""
    return _read(job, {OURS: lambda path: int(LogReader(path).to_arrow("/e0").num_rows)})


def read_values(job: Job) -> Step:
    """Decode messages one by one."""
    peers = {"mcap-ros2-support": _read_by_mcap_ros2, "rosbags": _read_by_rosbags} if job.case.kind in ros.TYPES else {}
    return _read(job, {OURS: lambda path: sum(1 for _ in LogReader(path).decoded()), **peers})


def read_joined(job: Job) -> Step:
    """Decode the messages of each endpoint to tables."""
    return _read(
        job,
        {OURS: lambda path: sum(batch.messages for _, batch in decode_joined_batches(LogReader(path).log_view))},
    )


def read_parquet(job: Job) -> Step:
    """Convert to Parquet. The output stays, because ext4 creates files more slowly after it has deleted other files."""
    return _read(
        job, {OURS: lambda path: LogReader(path).to_parquet(Path(tempfile.mkdtemp(dir=job.folder)) / "tables")}
    )


def _read(job: Job, readers: dict[str, Callable[[Path], int]]) -> Step:
    read, path = require(readers.get(job.system), "no such call"), _make_file(job)
    return Step(lambda: read(path))


def _read_by_mcap_ros2(path: Path) -> int:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with path.open("rb") as file:
        return sum(1 for _ in make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages())


def _read_by_rosbags(path: Path) -> int:
    from mcap.reader import make_reader

    count = 0
    with path.open("rb") as file:
        for schema, _, message in make_reader(file).iter_messages():
            assert schema is not None
            ros.STORE.deserialize_cdr(message.data, schema.name)
            count += 1
    return count


def _make_file(job: Job) -> Path:
    """Return a file of the case's kind of messages."""
    kind, _, own_schemas = job.case.kind.partition("_")
    count, messages = job.case.endpoints, job.case.messages

    def write(path: Path) -> None:
        schema, payloads = _make_messages(kind)
        schemas = [schema] * count
        if own_schemas:
            schemas = [replace(schema, data=schema.data + b"\n# %d" % number) for number in range(count)]
        write_file(path, payloads, messages, [f"/e{number}" for number in range(count)], schemas, "none")

    return make_once(job, f"{job.case.kind}-{count}-{messages}.mcap", write)


def _make_messages(kind: str) -> tuple[Schema, list[bytes]]:
    if kind in ros.TYPES:
        return ros.make_schema(kind), ros.make_messages(kind, _DISTINCT)
    if kind == "struct":
        return struct_schema(_STRUCT), [np.zeros(1, _STRUCT).tobytes()]
    values: list[Any] = [{"t": i, "x": i / 3, "name": "joint", "v": [1, 2, 3]} for i in range(_DISTINCT)]
    return Schema("J", "json"), [json.dumps(value).encode() for value in values]

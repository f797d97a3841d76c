"""Decoding, side by side with the libraries that decode ROS 2: ``python -m tools.bench.columns``.

Files of one endpoint each are read by the column and one by one. Files of one endpoint and of 300 interleaved endpoints
with the same messages are converted to Parquet. Measurements are those of ``tools.bench.recording``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rich.console import Console
from rich.table import Table
from rosbags.typesys import Stores, get_typestore

from msgq.common.schema import Schema
from msgq.recording import LogReader, Writer
from msgq.recording.export.decoded_tables import decode_joined_batches
from tools.bench.recording import Case, measure

STORE = get_typestore(Stores.ROS2_HUMBLE)
COLUMNS, VALUES, TABLE = "columns", "one by one", "to_arrow"
NAMES = (COLUMNS, TABLE, VALUES, "mcap-ros2-support", "rosbags")
ENDPOINT_COUNTS = (1, 300)
_INTERLEAVED_MESSAGES = {"Imu": 3, "json": 2, "struct": 6}  # times the messages of the other cases


def _of(name: str, *values: Any) -> Any:
    return STORE.types[name](*values)


def _header(i: int) -> Any:
    return _of("std_msgs/msg/Header", _of("builtin_interfaces/msg/Time", i, 7), "base_link")


def imu(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return numbers and three matrices, 320 bytes."""
    vector = _of("geometry_msgs/msg/Vector3", *noise[:3])
    turned = _of("geometry_msgs/msg/Quaternion", *noise[:4])
    return _of("sensor_msgs/msg/Imu", _header(i), turned, noise[:9], vector, noise[9:18], vector, noise[18:27])


def cloud(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return 20,000 points of 16 bytes."""
    fields = [_of("sensor_msgs/msg/PointField", name, 4 * k, 7, 1) for k, name in enumerate("xyzi")]
    data = np.resize(noise.view(np.uint8), 320_000)
    return _of("sensor_msgs/msg/PointCloud2", _header(i), 1, 20_000, fields, False, 16, 320_000, data, True)


def transforms(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return ten transforms, each with two texts."""
    moved = _of("geometry_msgs/msg/Vector3", *noise[:3]), _of("geometry_msgs/msg/Quaternion", *noise[:4])
    transform = _of("geometry_msgs/msg/Transform", *moved)
    stamped = [_of("geometry_msgs/msg/TransformStamped", _header(i), f"joint{k}", transform) for k in range(10)]
    return _of("tf2_msgs/msg/TFMessage", stamped)


ROS = {
    "Imu": ("sensor_msgs/msg/Imu", imu, 100_000),
    "TFMessage": ("tf2_msgs/msg/TFMessage", transforms, 10_000),
    "PointCloud2": ("sensor_msgs/msg/PointCloud2", cloud, 300),
}
STRUCT = np.dtype([("t", "<i8"), ("x", "<f8"), ("v", "<f4", (6,))])


class Messages(NamedTuple):
    """Messages of a case: the payloads are repeated."""

    schema: Schema
    payloads: list[bytes]
    message_count: int


def make(
    path: Path, messages: Messages, endpoints: Sequence[str] = ("/a",), schemas: Sequence[Schema] | None = None
) -> Path:
    """Write a file whose messages belong to the endpoints in turn. `schemas`: of each endpoint; None: the messages'."""
    with Writer(path, profile="ros2", compression="none") as writer:
        pairs = zip(endpoints, schemas or [messages.schema] * len(endpoints), strict=True)
        channels = [writer.channel(endpoint, schema) for endpoint, schema in pairs]
        for i in range(messages.message_count):
            payload = messages.payloads[i % len(messages.payloads)]
            writer.write(channels[i % len(channels)], payload, 1000 * i)
    return path


def all_messages(scale: float) -> dict[str, Messages]:
    """Return the messages of each case."""
    noise = np.random.default_rng(1).random((100, 30))
    made = {}
    for name, (type_name, message, count) in ROS.items():
        schema = Schema(type_name, "cdr", STORE.generate_msgdef(type_name, ros_version=2)[0].encode())
        payloads = [bytes(STORE.serialize_cdr(message(i, noise[i]), type_name)) for i in range(100)]
        made[name] = Messages(schema, payloads, int(count * scale))
    texts = [json.dumps({"t": i, "x": i / 3, "name": "joint", "v": [1, 2, 3]}).encode() for i in range(100)]
    made["json"] = Messages(Schema("J", "json"), texts, int(50_000 * scale))
    described = Schema("S", "struct", json.dumps(np.lib.format.dtype_to_descr(STRUCT)).encode())
    return made | {"struct": Messages(described, [np.zeros(1, STRUCT).tobytes()], int(200_000 * scale))}


def files(where: Path, scale: float) -> dict[str, Path]:
    """Write a file of each kind."""
    return {name: make(where / f"{name}.mcap", messages) for name, messages in all_messages(scale).items()}


def _by_mcap(path: Path, decode: Callable[[Any, Any], Any]) -> int:
    with path.open("rb") as file:
        return sum(1 for schema, _, message in make_reader(file).iter_messages() if decode(schema, message) or True)


def _mcap_ros2(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages())


def cases(made: dict[str, Path]) -> list[Case]:
    """Return the cases: payloads, and their decoders."""
    cases = []
    for name, path in made.items():
        systems: dict[str, Callable[[], float]] = {
            COLUMNS: partial(_columns, path),
            TABLE: partial(_table, path),
            VALUES: partial(_values, path),
        }
        if name in ROS:
            systems["mcap-ros2-support"] = partial(_mcap_ros2, path)
            systems["rosbags"] = partial(_by_mcap, path, lambda schema, m: STORE.deserialize_cdr(m.data, schema.name))
        cases.append(Case(name, "messages", systems))
    return cases


def _columns(path: Path) -> int:
    return sum(batch.messages for batch in LogReader(path).decoded_batches("/a"))


def _table(path: Path) -> int:
    return int(LogReader(path).to_arrow("/a").num_rows)


def _values(path: Path) -> int:
    return sum(1 for _ in LogReader(path).decoded())


def interleaved_cases(where: Path, scale: float) -> list[Case]:
    """Return files of one endpoint and of many interleaved endpoints, with the same messages."""
    cases = []
    for name, times in _INTERLEAVED_MESSAGES.items():
        messages = all_messages(times * scale)[name]
        cases.append(_interleaved_case(where, name, messages))
        if name in ROS:
            cases.append(_interleaved_case(where, f"{name}, own schemas", messages, has_own_schemas=True))
    return cases


def _interleaved_case(where: Path, name: str, messages: Messages, has_own_schemas: bool = False) -> Case:
    systems: dict[str, Callable[[], float]] = {}
    for count in ENDPOINT_COUNTS:
        endpoints, schemas = [f"/e{i}" for i in range(count)], [messages.schema] * count
        if has_own_schemas:
            schemas = [replace(schema, data=schema.data + b"\n# %d" % i) for i, schema in enumerate(schemas)]
        path = make(where / f"{name}-{count}.mcap", messages, endpoints, schemas)
        systems[f"tables, {count}"] = partial(_joined, path)
        systems[f"to_parquet, {count}"] = partial(_parquet, path, where)
    return Case(name, "messages", systems)


def _joined(path: Path) -> int:
    return sum(batch.messages for _, batch in decode_joined_batches(LogReader(path).log_view))


def _parquet(path: Path, where: Path) -> int:
    """Keep the output, because ext4 creates files more slowly after it has deleted other files."""
    return LogReader(path).to_parquet(Path(tempfile.mkdtemp(dir=where)) / "tables")


def _print_medians(rows: list[Case], names: Sequence[str], repeats: int) -> None:
    measure(rows, 1)  # imports, and memory
    results = measure(rows, repeats)
    shown = Table("messages a CPU second", *names)
    for row in rows:
        measurements = [f"{median(results[row.name][name]):,.0f}" if name in row.systems else "-" for name in names]
        shown.add_row(row.name, *measurements)
    Console().print(shown)


def main(arguments: Any) -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        where = Path(directory)
        if not arguments.interleaved:
            _print_medians(cases(files(where, arguments.scale)), NAMES, arguments.repeats)
        interleaved = interleaved_cases(where, arguments.scale)
        _print_medians(interleaved, list(interleaved[0].systems), arguments.repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.bench.columns", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the files")
    parser.add_argument("--interleaved", action="store_true", help="measure only interleaved endpoints")
    main(parser.parse_args())

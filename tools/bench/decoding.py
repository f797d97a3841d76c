"""What decoding a message costs, beside the libraries that do it: ``python -m tools.bench.decoding``.

All take turns in one run, and the best turn counts. Measurements are messages per second of CPU time of one core.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.decoding.cdr_writer import encode_cdr
from msgq.decoding.payload_decoder import PayloadDecoder
from msgq.decoding.rosmsg import parse_ros2_struct
from msgq.decoding.schemas import Schemas

_TURNS = 7
_SECONDS = 0.1
_LINE = "=" * 80
_PARTS = f"""
{_LINE}
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{_LINE}
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
{_LINE}
MSG: geometry_msgs/Vector3
float64 x
float64 y
float64 z
{_LINE}
MSG: geometry_msgs/Quaternion
float64 x
float64 y
float64 z
float64 w
"""
_ROS = {
    "sensor_msgs/msg/Imu": "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\n"
    "float64[9] orientation_covariance\ngeometry_msgs/Vector3 angular_velocity\n"
    "float64[9] angular_velocity_covariance\ngeometry_msgs/Vector3 linear_acceleration\n"
    f"float64[9] linear_acceleration_covariance{_PARTS}",
    "sensor_msgs/msg/LaserScan": "std_msgs/Header header\nfloat32 angle_min\nfloat32 angle_max\n"
    "float32 angle_increment\nfloat32 time_increment\nfloat32 scan_time\nfloat32 range_min\nfloat32 range_max\n"
    f"float32[] ranges\nfloat32[] intensities{_PARTS}",
    "sensor_msgs/msg/JointState": "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
    f"float64[] effort{_PARTS}",
}
_EVENT = """@0xf3b1f17e25a4285b;
struct Can { address @0 :UInt32; dat @1 :Data; src @2 :UInt8; }
struct Event { logMonoTime @0 :UInt64; valid @1 :Bool = true; union { can @2 :List(Can); speed @3 :Float32; } }
"""


class Case(NamedTuple):
    """A message, and who else decodes it."""

    name: str
    schema: Schema
    message: bytes
    peers: dict[str, Callable[[], Any]]


def _head() -> dict[str, Any]:
    return {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "base_link"}


def _values() -> dict[str, Any]:
    vector, nine = {"x": 1.0, "y": 2.0, "z": 3.0}, np.zeros(9)
    names = ("angle_min", "angle_max", "angle_increment", "time_increment", "scan_time", "range_min", "range_max")
    imu: dict[str, Any] = {"header": _head(), "orientation": vector | {"w": 1.0}}
    for name in ("angular_velocity", "linear_acceleration"):
        imu |= {name: vector, f"{name}_covariance": nine}
    scan: dict[str, Any] = {"header": _head(), **dict.fromkeys(names, 0.5)}
    scan |= dict.fromkeys(("ranges", "intensities"), np.zeros(720, np.float32))
    joints: dict[str, Any] = {"header": _head(), "name": [f"joint{i}" for i in range(7)]}
    joints |= dict.fromkeys(("position", "velocity", "effort"), np.zeros(7))
    return {
        "sensor_msgs/msg/Imu": imu | {"orientation_covariance": nine},
        "sensor_msgs/msg/LaserScan": scan,
        "sensor_msgs/msg/JointState": joints,
    }


def _ros_cases() -> Iterator[Case]:
    from mcap_ros2._dynamic import generate_dynamic
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    for name, value in _values().items():
        store, first = get_typestore(Stores.EMPTY), get_typestore(Stores.EMPTY)
        store.register(get_types_from_msg(_ROS[name], name))
        data = encode_cdr(parse_ros2_struct(name, _ROS[name]), value)
        peers: dict[str, Callable[[], Any]] = {"rosbags": partial(store.deserialize_cdr, data, name)}
        peers["mcap_ros2"] = partial(generate_dynamic(name, _ROS[name])[name], data)
        short_name = name.rpartition("/")[2]
        yield Case(f"cdr: {short_name}", Schema(name, "cdr", _ROS[name].encode()), data, peers)
        # As rosbags converts it: the header of ROS 1 has a number before its time.
        text = _ROS[name].replace("builtin_interfaces/Time stamp", "uint32 seq\ntime stamp")
        first.register(get_types_from_msg(text, name))
        old = bytes(store.cdr_to_ros1(data, name))
        peers = {"rosbags": partial(first.deserialize_ros1, old, name)}
        yield Case(f"ros1: {short_name}", Schema(name.replace("/msg", ""), "ros1", text.encode()), old, peers)


def _capnp_cases(folder: Path) -> Iterator[Case]:
    import capnp

    (folder / "log.capnp").write_text(_EVENT)
    event = capnp.load(str(folder / "log.capnp")).Event
    schema = Schemas.of_texts([f"capnproto:{folder}/log.capnp:Event"]).of("", None)
    if schema is None:
        raise ValueError("no schema was made")

    def read(data: bytes) -> Any:
        with event.from_bytes(data) as decoded:
            return decoded.to_dict()

    can = [{"address": i, "dat": bytes(8), "src": 1} for i in range(50)]
    for name, fields in (("small", {"speed": 0.5}), ("50 CAN frames", {"can": can})):
        data = event.new_message(**fields).to_bytes()
        yield Case(f"capnproto: {name}", schema, data, {"pycapnp": partial(read, data)})


def _flat_case() -> Case:
    files = Path(__file__).parents[2] / "tests/decoding/files"
    schema = Schema("tests.Every", "flatbuffer", (files / "every.bfbs").read_bytes())
    return Case("flatbuffer: 120 fields", schema, (files / "every.bin").read_bytes(), {})


def _plain_cases() -> Iterator[Case]:
    import cbor2
    import msgpack

    value = {"header": _head(), "pose": {"x": 1.5, "y": 2.5, "z": 3.5}, "valid": True, "count": 7}
    yield Case("json: 9 fields", Schema("a", "json"), json.dumps(value).encode(), {})
    yield Case("msgpack: 9 fields", Schema("a", "msgpack"), msgpack.packb(value), {})
    yield Case("cbor: 9 fields", Schema("a", "cbor"), cbor2.dumps(value), {})
    dtype = np.dtype([("time", "<i8"), ("pose", "<f8", 7), ("valid", "?")])
    yield Case("struct: 3 fields", struct_schema(dtype), bytes(dtype.itemsize), {})


def _rate(decode: Callable[[], Any]) -> float:
    count, begin = 0, time.process_time()
    while (elapsed := time.process_time() - begin) < _SECONDS:
        for _ in range(20):
            decode()
        count += 20
    return count / elapsed


def measure_case(case: Case) -> dict[str, float]:
    """Return the rate of each decoder, msgq first."""
    payload_decoder = PayloadDecoder()
    all_of: dict[str, Callable[[], Any]] = {
        "msgq": lambda: payload_decoder.decode_payload(case.schema, case.message),
        **case.peers,
    }
    turns = [{name: _rate(decode) for name, decode in all_of.items()} for _ in range(_TURNS)]
    return {name: max(turn[name] for turn in turns) for name in all_of}


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = [*_plain_cases(), *_ros_cases(), _flat_case(), *_capnp_cases(Path(folder))]
        results = {case.name: {"bytes": len(case.message), **measure_case(case)} for case in cases}
    if asked.json:
        print(json.dumps(results))
        return
    table = Table("message", "bytes", "messages/s", "others")
    for name, measurements in results.items():
        size, own, *peers = measurements.items()
        said = ", ".join(f"{name} {rate:,.0f}" for name, rate in peers)
        table.add_row(name, f"{size[1]:,.0f}", f"{own[1]:,.0f}", said)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

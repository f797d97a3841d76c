"""What decoding a payload costs, beside the libraries that do it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.decoding.payload_decoder import PayloadDecoder
from msgq.decoding.schemas import Schemas
from tools.bench.adapters import OURS
from tools.bench.job import Job
from tools.bench.machine import PROJECT
from tools.bench.roles import require
from tools.bench.works import Step

_SECONDS = 0.1  # processor time of a measurement
_EVENT = """@0xf3b1f17e25a4285b;
struct Can { address @0 :UInt32; dat @1 :Data; src @2 :UInt8; }
struct Event { logMonoTime @0 :UInt64; valid @1 :Bool = true; union { can @2 :List(Can); speed @3 :Float32; } }
"""


_VALUE = {
    "header": {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "base_link"},
    "pose": {"x": 1.5, "y": 2.5, "z": 3.5},
    "valid": True,
    "count": 7,
}


_PACKERS = {"json": ("json", "dumps"), "msgpack": ("msgpack", "packb"), "cbor": ("cbor2", "dumps")}


class Payload(NamedTuple):
    """A message, and the calls of other libraries that decode it."""

    schema: Schema
    message: bytes
    peers: Mapping[str, Callable[[], Any]] = {}


def decode(job: Job) -> Step:
    """Decode one payload again and again."""
    payload = _make_payload(job)
    decoder = PayloadDecoder()
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: decoder.decode_payload(payload.schema, payload.message),
        **payload.peers,
    }
    call = require(calls.get(job.system), "no decoder of this encoding")

    def run() -> int:
        count, begin = 0, time.process_time()
        while time.process_time() - begin < _SECONDS:
            for _ in range(20):
                call()
            count += 20
        return count

    return Step(run)


def _make_payload(job: Job) -> Payload:
    encoding, _, name = job.case.kind.partition("_")
    if encoding in ("cdr", "ros1"):
        return (_make_cdr if encoding == "cdr" else _make_ros1)(name)
    if encoding == "capnproto":
        return _make_capnproto(job, name)
    return _make_plain(encoding)


def _make_cdr(kind: str) -> Payload:
    from mcap_ros2._dynamic import generate_dynamic

    from tools.bench.works import ros

    schema, (data,) = ros.make_schema(kind), ros.make_messages(kind, 1)
    peers: dict[str, Callable[[], Any]] = {"rosbags": partial(ros.STORE.deserialize_cdr, data, schema.name)}
    peers["mcap-ros2-support"] = partial(generate_dynamic(schema.name, schema.data.decode())[schema.name], data)
    return Payload(schema, data, peers)


def _make_ros1(kind: str) -> Payload:
    from rosbags.typesys import Stores, get_typestore

    from tools.bench.works import ros

    name, store = ros.TYPES[kind][0], get_typestore(Stores.ROS1_NOETIC)
    data = bytes(ros.STORE.cdr_to_ros1(ros.make_messages(kind, 1)[0], name))
    schema = Schema(name.replace("/msg", ""), "ros1", store.generate_msgdef(name, ros_version=1)[0].encode())
    return Payload(schema, data, {"rosbags": partial(store.deserialize_ros1, data, name)})


def _make_capnproto(job: Job, name: str) -> Payload:
    import capnp

    path = job.folder / f"{job.name}.capnp"
    path.write_text(_EVENT)
    event = capnp.load(str(path)).Event
    schema = require(Schemas.of_texts([f"capnproto:{path}:Event"]).of("", None), "no schema was made")
    can = [{"address": i, "dat": bytes(8), "src": 1} for i in range(50)]
    fields: dict[str, Any] = {"speed": 0.5} if name == "small" else {"can": can}
    data = event.new_message(**fields).to_bytes()

    def read() -> Any:
        with event.from_bytes(data) as decoded:
            return decoded.to_dict()

    return Payload(schema, data, {"pycapnp": read})


def _make_plain(encoding: str) -> Payload:
    if encoding == "flatbuffer":
        files = PROJECT / "tests/decoding/files"
        schema = Schema("tests.Every", "flatbuffer", (files / "every.bfbs").read_bytes())
        return Payload(schema, (files / "every.bin").read_bytes())
    if encoding == "struct":
        dtype = np.dtype([("time", "<i8"), ("pose", "<f8", 7), ("valid", "?")])
        return Payload(struct_schema(dtype), bytes(dtype.itemsize))
    module, function = _PACKERS[encoding]
    packed = getattr(importlib.import_module(module), function)(_VALUE)
    return Payload(Schema("a", encoding), packed.encode() if isinstance(packed, str) else packed)

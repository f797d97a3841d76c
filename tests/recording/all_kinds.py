"""A log with messages of all kinds of endpoints, written by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from msgq.common import queue_events
from msgq.common.message_source import MessageSource
from msgq.common.queue_events import Event
from msgq.common.record_changes import RecordChange, make_record_change_schema, pack_change
from msgq.common.schema import Schema
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.log_writer import Writer
from visionipc.image_messages import IMAGE

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS
MS = NS // 1000
QUOTE = np.dtype([("bid", "<f8"), ("ask", "<f4")])
CHANNEL = {"capacity": 16, "slot_bytes": 256, "stamps": True}
VECTOR = {"form": "vector", "length": 8, "copies": 2, "exclusive": False}
BOARD = {"form": "board", "keys": 4, "value_bytes": 64}
QUEUE = {"max_messages": 32, "max_message_size": 128}
SCHEMA = Schema("text", "json")


class Log:
    """Writes one, message by message; times are ms from its beginning."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._channels: dict[Any, int] = {}
        self._counts: dict[Any, int] = {}

    def add(
        self,
        ms: float,
        endpoint: str,
        data: bytes,
        source: MessageSource,
        schema: Schema | None,
        age_ns: int | None = None,
    ) -> None:
        key = endpoint, source, schema
        if key not in self._channels:
            tracked = source.kind == "topic" and age_ns is not None
            said = metadata_keys.build_channel_metadata(
                len(self._channels) + 1, metadata_keys.RECORDER_SEQUENCE, tracked, source
            )
            self._channels[key] = self._writer.channel(endpoint, schema, metadata=said)
        time = BEGIN + round(ms * MS)
        origin = 0 if age_ns is None else time - age_ns
        self._writer.write(self._channels[key], data, time, sequence=0, origin_time=origin)

    def topic(self, ms: float, data: bytes, name: str = "topic", age_ns: int | None = None) -> None:
        self.add(ms, name, data, MessageSource(), SCHEMA, age_ns)

    def channel(self, ms: float, data: bytes, publisher: str, age_ns: int | None = None, **options: Any) -> None:
        source = MessageSource("channel", publisher, options=json.dumps({**CHANNEL, **options}))
        self.add(ms, "channel/lidar", data, source, SCHEMA, age_ns)

    def vector(
        self, ms: float, index: int, value: tuple[float, ...], item: np.dtype[Any] = QUOTE, **options: Any
    ) -> None:
        source = MessageSource("records", options=json.dumps({**VECTOR, **options}))
        self._counts[index] = count = self._counts.get(index, 0) + 1
        data = pack_change(RecordChange(index, count, BEGIN + round(ms * MS)), np.array(value, item).tobytes())
        self.add(ms, "records/quotes", data, source, make_record_change_schema(item))

    def board(self, ms: float, key: str, value: bytes) -> None:
        self.add(ms, "records/state", value, MessageSource("records", key=key, options=json.dumps(BOARD)), SCHEMA)

    def queue(self, ms: float, data: bytes, priority: int = 0, event: Event = Event.SENT, payload: bool = True) -> None:
        self._counts["queue"] = number = self._counts.get("queue", 0) + 1
        time = BEGIN + round(ms * MS)
        fields = (event, 3, priority, 0, number, time, time, 0, len(data), 1234)
        head = struct.pack(queue_events.EVENT_HEAD_FORMAT, *fields)
        source = MessageSource("queue", "sender", options=json.dumps(QUEUE))
        with_payload = payload and event is Event.SENT
        self.add(ms, "queue/jobs", head + (data if with_payload else b""), source, queue_events.QUEUE_EVENT_SCHEMA)

    def picture(self, ms: float, data: bytes, frame_id: int = 7, encoding: str = "rgb8", **layout: int) -> None:
        sizes = {"height": 2, "width": 2, "step": 6, **layout}
        source = MessageSource("frames")
        self.add(ms, "visionipc_cam_3/image", picture(data, frame_id, encoding, **sizes), source, IMAGE)


def picture(data: bytes, frame_id: int, encoding: str, height: int, width: int, step: int) -> bytes:
    """Return a sensor_msgs/msg/Image in CDR."""
    made = bytearray(struct.pack("<iI", 5, 6))

    def put(form: str, value: int) -> None:
        size = struct.calcsize(form)
        made.extend(bytes(-len(made) % size) + struct.pack(f"<{form}", value))

    def sequence(content: bytes) -> None:
        put("I", len(content))
        made.extend(content)

    sequence(str(frame_id).encode() + b"\0")
    put("I", height)
    put("I", width)
    sequence(encoding.encode() + b"\0")
    put("B", 0)
    put("I", step)
    sequence(data)
    return b"\0\1\0\0" + bytes(made)


def write(path: Path, fill: Any) -> Path:
    """Write a log; `fill` gets a `Log`."""
    with Writer(path) as writer:
        fill(Log(writer))
    return path


def fill_with_frames(log: Log) -> None:
    """One second of all kinds: ten of each, one after the other."""
    fill_all(log, frames=True)


def fill_all(log: Log, frames: bool = False) -> None:
    """The same, but no frames."""
    for i in range(10):
        at = 100 * i
        log.topic(at, b'{"n": %d}' % i)
        log.channel(at + 1, b"scan %d" % i, ("front", "rear")[i % 2])
        log.vector(at + 2, i % 4, (i + 0.5, i))
        log.board(at + 3, ("mode", "pose")[i % 2], b"%d" % i)
        log.queue(at + 4, b"job %d" % i, priority=i % 3)
        log.queue(at + 5, b"job %d" % i, event=Event.TAKEN)
        if frames:
            log.picture(at + 6, bytes(range(i, i + 12)), frame_id=i)

"""Files of others' writers: each message as the project's own reader has it, and whatever was given to the writer."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import NonSeekingReader

from msgq.recording import LogReader
from tests.recording import npm
from tests.recording.logs import write_foreign

pytestmark = pytest.mark.ci
COUNT = 500
TEXT = "std_msgs/msg/String"
DEFINITION = "string data"
Sent = list[tuple[str, int, bytes]]


def sent() -> Sent:
    """Return what is written: topic, log_time, payload; not in the order of time."""
    return [(f"/topic{i % 3}", 1000 + 10 * (i ^ 1), b'{"n": %d}' % i) for i in range(COUNT)]


def as_cdr(text: bytes) -> bytes:
    return b"\0\1\0\0" + (len(text) + 1).to_bytes(4, "little") + text + b"\0"


def by_core(path: Path, **options: Any) -> Sent:
    schema = {"name": "Number", "encoding": "jsonschema", "data": "{}"}
    messages = [(topic, time, base64.b64encode(data).decode()) for topic, time, data in sent()]
    told = {"path": str(path), "options": options, "schema": schema, "messages": messages}
    npm.run(Path(__file__).with_name("writers.mjs"), told, "@mcap/core")
    return sent()


def by_foxglove(path: Path, **options: Any) -> Sent:
    foxglove = pytest.importorskip("foxglove", reason="foxglove-sdk is not installed")
    from foxglove.mcap import MCAPWriteOptions

    context = foxglove.Context()
    schema = foxglove.Schema(name="Number", encoding="jsonschema", data=b"{}")
    with foxglove.open_mcap(path, context=context, writer_options=MCAPWriteOptions(**options)):
        channels: dict[str, Any] = {}
        for topic, time, data in sent():
            if topic not in channels:
                channels[topic] = foxglove.Channel(topic, message_encoding="json", schema=schema, context=context)
            channels[topic].log(data, log_time=time)
    return sent()


def by_ros2_support(path: Path, **options: Any) -> Sent:
    writer = pytest.importorskip("mcap_ros2.writer", reason="mcap-ros2-support is not installed")
    with path.open("wb") as file:
        ros = writer.Writer(file, **options)
        schema = ros.register_msgdef(TEXT, DEFINITION)
        for topic, time, data in sent():
            ros.write_message(topic, schema, {"data": data.decode()}, log_time=time, publish_time=time, sequence=time)
        ros.finish()
    return [(topic, time, as_cdr(data)) for topic, time, data in sent()]


def by_rosbags(path: Path, **options: Any) -> Sent:
    rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
    bag = path.with_suffix("")
    with rosbag2.Writer(bag, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        connections: dict[str, Any] = {}
        for topic, time, data in sent():
            if topic not in connections:
                kind = {"msgdef": DEFINITION, "rihs01": "RIHS01_" + "0" * 64}
                connections[topic] = writer.add_connection(topic, TEXT, **kind)
            writer.write(connections[topic], time, as_cdr(data))
    (bag / f"{bag.name}.mcap").rename(path)
    return [(topic, time, as_cdr(data)) for topic, time, data in sent()]


def by_pybag(path: Path, **options: Any) -> Sent:
    pytest.importorskip("pybag", reason="pybag-sdk is not installed")
    from pybag.mcap_writer import McapFileWriter
    from pybag.ros2.humble.std_msgs import String

    with McapFileWriter.open(path, **options) as writer:
        for topic, time, data in sent():
            writer.write_message(topic, time, String(data=data.decode()))
        writer.write_attachment("a", b"b")
    return [(topic, time, as_cdr(data)) for topic, time, data in sent()]


def by_mcap(path: Path, **options: Any) -> Sent:
    write_foreign(path, COUNT, -1, **options)
    return [(f"topic{i % 3}", 1000 + 10 * i, b'{"n": %d}' % i) for i in range(COUNT)]


WRITERS: dict[str, tuple[Callable[..., Sent], dict[str, Any]]] = {
    "@mcap/core": (by_core, {"chunkSize": 2000}),
    "@mcap/core, no schemas in the summary": (by_core, {"chunkSize": 2000, "repeatSchemas": False}),
    "@mcap/core, unchunked": (by_core, {"useChunks": False}),
    "foxglove-sdk": (by_foxglove, {"chunk_size": 2000}),
    "foxglove-sdk, unchunked": (by_foxglove, {"use_chunks": False}),
    "foxglove-sdk, no seeking": (by_foxglove, {"chunk_size": 2000, "disable_seeking": True}),
    "mcap-ros2-support": (by_ros2_support, {"chunk_size": 2000}),
    "rosbags": (by_rosbags, {}),
    "pybag-sdk": (by_pybag, {"chunk_size": 2000, "chunk_compression": "zstd"}),
    "pybag-sdk, unchunked": (by_pybag, {}),
    "mcap": (by_mcap, {"enable_data_crcs": True}),
    "mcap, unchunked": (by_mcap, {"enable_data_crcs": True, "use_chunking": False}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_reader_returns_all_messages_written_by_each_writer(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "a.mcap"
    write, options = WRITERS[writer]
    expected = sorted(write(path, **options), key=lambda message: message[1])
    log = LogReader(path)
    found = list(log)
    assert [(m.endpoint, m.log_time, m.data) for m in found] == expected
    assert log.problems == []
    with path.open("rb") as file:
        theirs = list(NonSeekingReader(file, validate_crcs=True).iter_messages())
    fields = [(channel.topic, m.data, m.log_time, m.publish_time, m.sequence) for _, channel, m in theirs]
    assert sorted((m.endpoint, m.data, m.log_time, m.publish_time, m.sequence) for m in found) == sorted(fields)
    schemas = {channel.topic: schema and (schema.name, schema.encoding, schema.data) for schema, channel, _ in theirs}
    assert {channel.endpoint: channel.channel_record.schema for channel in log.channels} == schemas

"""What a file says of its messages is kept as the file has it."""

from __future__ import annotations

from pathlib import Path

from mcap.writer import Writer

import msgq
from msgq.recording import LogReader
from msgq.recording.mcap_io.channel_registry import SchemaRecord

QOS = {"offered_qos_profiles": "- history: 1", "topic_type_hash": "RIHS01"}


def write_described_file(path: Path, message_encoding: str, schema_encoding: str) -> None:
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start("ros2", "somebody")
        schema = writer.register_schema("pkg/msg/Number", schema_encoding, b"int32 number")
        channel = writer.register_channel("/number", message_encoding, schema, QOS)
        writer.add_message(channel, 1, b"\0\1\0\0\1\0\0\0", 1)
        writer.finish()


def test_channel_registry_keeps_encodings_and_channel_record(tmp_path: Path) -> None:
    write_described_file(tmp_path / "a.mcap", "cdr", "ros2idl")
    log = LogReader(tmp_path / "a.mcap")
    (message,) = log
    assert message.schema is not None
    assert (message.schema.encoding, message.schema.schema_encoding) == ("cdr", "ros2idl")
    (channel,) = log.channels
    assert dict(channel.channel_record.metadata) == QOS
    assert channel.channel_record.schema == SchemaRecord("pkg/msg/Number", "ros2idl", b"int32 number")
    assert (log.files[0].header.profile, log.files[0].header.library) == ("ros2", "somebody")


def test_channel_without_message_encoding_uses_schema_encoding(tmp_path: Path) -> None:
    write_described_file(tmp_path / "a.mcap", "", "ros1msg")
    (message,) = log = LogReader(tmp_path / "a.mcap")
    assert message.schema is not None
    assert (message.schema.encoding, message.schema.schema_encoding) == ("ros1", "ros1msg")
    assert log.channels[0].channel_record.message_encoding == ""


def test_topic_metadata_gives_definition_encodings(endpoint: str) -> None:
    schema = msgq.Schema("pkg/msg/Number", "cdr", b"struct Number", schema_encoding="ros2idl")
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, endpoint, schema=schema)
        found = msgq.stats.topic(endpoint).schema
    assert found == schema
    assert schema.encodings == "cdr;ros2idl"

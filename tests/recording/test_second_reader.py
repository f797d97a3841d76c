"""Our recordings, opened by a reader that shares no code with ours and none with the library that writes them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pybag.mcap.record_reader import McapChunkedReader

import msgq
from msgq.recording import LogReader, Recorder
from msgq.recording.repair.recover import recover
from tests.support import wait_until

SCHEMA = msgq.Schema("Number", "json", b'{"type": "object"}')
Sent = list[tuple[str, int, int, int, bytes]]


@pytest.fixture(params=["zstd", "lz4", "none"])
def recording(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> Path:
    """A segment of several chunks with two endpoints, one of which has a schema and one messages of no bytes."""
    pubs = [msgq.PubSocket(), msgq.PubSocket()]
    pubs[0].connect(msgq.context, "number", schema=SCHEMA)
    pubs[1].connect(msgq.context, "raw")
    path = tmp_path / "a.mcap"
    with Recorder(path, ["number", "raw"], compression=request.param, chunk_bytes=2000) as recorder:
        for i in range(200):
            pubs[0].send(b'{"n": %d}' % i)
            pubs[1].send(b"x" * (i % 40))
            wait_until(partial(lambda least: recorder.stats().messages >= least, 2 * i - 100))
    for pub in pubs:
        pub.close()
    return path


def read_with_msgq(path: Path) -> Sent:
    return [(m.endpoint, m.sequence, m.log_time, m.publish_time, m.data) for m in LogReader(path)]


def read_with_library(path: Path, **chosen: Any) -> Sent:
    """Return what the other reader finds by the summary, with all CRCs checked."""
    found = McapChunkedReader.from_file(path, enable_crc_check=True, enable_summary_reconstruction="never")
    with found as reader:
        names = {number: channel.topic for number, channel in reader.get_channels().items()}
        messages = reader.get_messages(**chosen)
        return [(names[m.channel_id], m.sequence, m.log_time, m.publish_time, m.data) for m in messages]


def test_pybag_reader_and_msgq_reader_give_equal_messages(recording: Path) -> None:
    found = read_with_msgq(recording)
    assert len(found) == 400
    assert sorted(read_with_library(recording)) == sorted(found)
    middle = found[200][2]
    assert sorted(read_with_library(recording, end_timestamp=middle)) == sorted(m for m in found if m[2] <= middle)


def test_pybag_reader_and_msgq_reader_give_equal_schemas_and_channels(recording: Path) -> None:
    log = LogReader(recording)
    with McapChunkedReader.from_file(recording, enable_crc_check=True) as reader:
        counts = reader.get_statistics().channel_message_counts
        by_name = {channel.topic: channel for channel in reader.get_channels().values()}
        assert {name: counts[channel.id] for name, channel in by_name.items()} == {"number": 200, "raw": 200}
        assert len(reader.get_chunk_indexes()) == len(log.files[0].blocks) > 3
        schema = reader.get_channel_schema(by_name["number"].id)
        assert schema is not None
        assert (schema.name, schema.encoding, schema.data) == ("Number", "jsonschema", SCHEMA.data)
        assert [m.metadata for m in reader.get_metadata("msgq.recording")] == [log.files[0].metadata["msgq.recording"]]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_pybag_reader_and_msgq_reader_give_equal_messages_after_recovery(recording: Path, share: float) -> None:
    os.truncate(recording, int(recording.stat().st_size * share))
    left = read_with_msgq(recording)
    assert 0 < len(left) < 400
    assert recover(recording, in_place=True).messages == len(left)
    assert sorted(read_with_library(recording)) == sorted(left)


def test_pybag_reader_and_msgq_reader_give_equal_messages_after_damage(recording: Path) -> None:
    damaged = LogReader(recording).files[0].blocks[2]
    data = bytearray(recording.read_bytes())
    for place in range(damaged.offset + damaged.stored_bytes - 40, damaged.offset + damaged.stored_bytes - 20):
        data[place] ^= 0xFF  # a single bit may be one that decompression does not look at
    recording.write_bytes(data)
    left = read_with_msgq(recording)
    assert 0 < len(left) < 400
    assert recover(recording, in_place=True).damaged_bytes >= damaged.stored_bytes
    assert sorted(read_with_library(recording)) == sorted(left)

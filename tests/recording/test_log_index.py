"""What a player knows of a log before it plays: as much as is needed, of as little as can be read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from mcap.opcode import Opcode
from mcap.writer import CompressionType, IndexType
from mcap.writer import Writer as McapWriter

import msgq
from msgq import stats
from msgq.recording import LogReader, Player, Writer
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.byte_reader import LocalReader, open_descriptor
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.message_indexes import iterate_message_indexes
from msgq.recording.mcap_io.raw_chunk import find_raw_chunk
from msgq.recording.mcap_io.record_structs import MESSAGE_INDEX_HEAD_STRUCT
from msgq.recording.player import log_index
from msgq.recording.player.log_index import LogIndex
from tests.recording import raw_mcap
from tests.recording.logs import FOREIGN, write_foreign, write_log

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of what was read."""
    places: list[int] = []
    content = McapFile.read_block

    def noted(self: Any, block: DataBlock) -> bytes | None:
        places.append(block.offset)
        return content(self, block)

    monkeypatch.setattr(McapFile, "read_block", noted)
    return places


def large_chunks(path: Path, **options: Any) -> Path:
    """Write chunks of half a MiB, each with a message of another size of each endpoint."""
    messages = []
    for i in range(20):
        messages += [("small", BEGIN + i * NS, bytes(100 + i)), ("large", BEGIN + i * NS, bytes(400_000 + i))]
    return write_log(path, *messages)


@pytest.mark.parametrize("kind", FOREIGN)
def test_log_index_equals_index_from_full_read(tmp_path: Path, kind: str) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind]))
    for part in (log, log.between(1500, 2500), log.between(1000, 1011), log.between(9000)):
        found = LogIndex(part).endpoints
        assert found.keys() == part.endpoints.keys() or (kind == "no index" and found.keys() >= part.endpoints.keys())
        for name, info in part.endpoints.items():
            assert (found[name].schema, found[name].is_tracked, found[name].kind) == (
                info.schema,
                info.tracked,
                info.kind,
            )
            assert found[name].largest_payload_bytes >= info.largest


def test_player_of_long_log_starts_without_full_read(prefix: str, tmp_path: Path, read: list[int]) -> None:
    """Failure would mean: a player of a long recording keeps everybody waiting."""
    messages = ((f"e{i % 3}", BEGIN + i * NS // 10, bytes(500)) for i in range(5000))
    path = write_log(tmp_path / "a.mcap", *messages)
    with Player(path):
        assert len(LogReader(path).log_view.files[0].blocks) > 500
        assert len(read) < 15


def test_chunk_indexes_give_message_sizes(tmp_path: Path, read: list[int]) -> None:
    found = LogIndex(LogReader(large_chunks(tmp_path / "a.mcap"))).endpoints
    assert 119 <= found["small"].largest_payload_bytes < 150  # a record of a channel may be between two messages
    assert 400_019 <= found["large"].largest_payload_bytes < 400_050
    assert not read


def test_log_index_with_many_large_chunks_skips_smaller_chunks(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "_INDEX_BYTES_MAX", 1)
    found = LogIndex(LogReader(large_chunks(tmp_path / "a.mcap"))).endpoints
    assert found["large"].largest_payload_bytes >= 400_019
    assert 400_000 < found["small"].largest_payload_bytes < 410_000
    assert not read


def test_file_statistics_give_message_sizes(tmp_path: Path, read: list[int]) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        small, large, _ = (writer.channel(name) for name in ("small", "large", "silent"))
        for i in range(100):
            writer.write(large, bytes(100_000), BEGIN + i)
            writer.write(small, bytes(i), BEGIN + i)
    found = LogIndex(LogReader(tmp_path / "a.mcap")).endpoints
    assert {name: one.largest_payload_bytes for name, one in found.items()} == {"small": 99, "large": 100_000}
    assert not read


HOSTILE_INDEXES = {
    "a record of 2^64 bytes": (1 << 64) - 1,
    "a record beyond the file": 1 << 40,
    "a record that ends before its entries": 5,
}


@pytest.mark.parametrize("entry_count", [0, 1], ids=["empty", "with a message"])
@pytest.mark.parametrize("length", HOSTILE_INDEXES.values(), ids=HOSTILE_INDEXES)
def test_damaged_message_indexes_give_no_message_sizes(tmp_path: Path, length: int, entry_count: int) -> None:
    """The size of the chunk then is the limit, and the chunk cannot be copied without reading it."""
    path = large_chunks(tmp_path / "a.mcap")
    blocks = LogReader(path).log_view.files[0].blocks
    data = bytearray(path.read_bytes())
    for block in blocks:
        at = block.offset + block.stored_bytes
        opcode, _, channel, _ = MESSAGE_INDEX_HEAD_STRUCT.unpack_from(data, at)
        assert opcode == Opcode.MESSAGE_INDEX
        MESSAGE_INDEX_HEAD_STRUCT.pack_into(data, at, opcode, length, channel, 16 * entry_count)
    path.write_bytes(data)
    found = LogIndex(LogReader(path)).endpoints
    assert {name: 400_000 < one.largest_payload_bytes < 410_000 for name, one in found.items()} == {
        "small": True,
        "large": True,
    }
    with LogReader(path).log_view.files[0].file_source.open_bytes() as source:
        assert [find_raw_chunk(source, block) for block in blocks] == [None] * len(blocks)


def test_message_index_of_repeated_channel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "indexes"
    index = raw_mcap.record(raw_mcap.MESSAGE_INDEX, struct.pack("<HIQQ", 1, 16, BEGIN, 0))
    path.write_bytes(2 * index)
    with open_descriptor(path) as fd, pytest.raises(ValueError, match=f"byte {len(index)} is invalid"):
        list(iterate_message_indexes(LocalReader(fd), 0, 2 * len(index), 1000))


@pytest.mark.parametrize("said", [10, 1 << 62, -5, "x", None])
def test_player_with_wrong_file_statistics_counts_unplayable_messages(
    prefix: str, tmp_path: Path, monkeypatch: Any, said: Any
) -> None:
    path = tmp_path / "a.mcap"
    with Writer(path) as writer:
        number = writer.channel("e")
        for i in range(4):
            writer.write(number, bytes(10 if i % 2 else 500_000), BEGIN + i)
    metadata = LogReader(path).files[0].metadata
    metadata[metadata_keys.STATISTICS_METADATA]["1"] = json.dumps(
        json.loads(metadata[metadata_keys.STATISTICS_METADATA]["1"]) | {"largest": said}
    )
    monkeypatch.setattr(McapFile, "metadata", metadata)
    with Player(path) as player:
        assert stats.topic("e").data_bytes < 10 << 20
        done = player.run()
    assert done.messages == (2 if said == 10 else 4)
    assert sum(done.unplayed.values()) == 4 - done.messages
    assert all("does not fit" in why for why in done.unplayed)


def test_log_index_reads_sizes_of_compressed_messages(tmp_path: Path) -> None:
    """Their chunks and indexes do not tell how large they are."""
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = McapWriter(file)
        writer.start("ros2", "test")
        topic = writer.register_channel("/points", "cdr", writer.register_schema("Points", "ros2msg", b"uint8[] data"))
        for i in range(3):
            writer.add_message(topic, BEGIN + i, zstandard.compress(bytes(1_000_000 + i)), BEGIN + i)
        writer.finish()
    assert LogIndex(LogReader(path)).endpoints["/points"].largest_payload_bytes == 1_000_002


def test_existing_ring_is_checked_against_real_message_size(prefix: str, tmp_path: Path) -> None:
    """The chunk could have a message that is too large for this ring, and has none."""
    path = write_log(tmp_path / "a.mcap", *(("e", BEGIN + i, bytes(100)) for i in range(3000)))
    msgq.pub_sock("e", 8192).close()
    with Player(path) as player:
        assert player.run().messages == 3000


def test_endpoint_missing_in_index_is_reported(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogIndex, "_find_block_channels", lambda *_: {1})
    path = write_log(tmp_path / "a.mcap", ("a", BEGIN, b"1"), ("b", BEGIN + 1, b"2"))
    with Player(path) as player:
        assert player.endpoints == ("a",)
        assert player.run().messages == 1
    assert "reindex" in player.skipped["b"]


def test_large_messages_without_index_are_played(prefix: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "index_types": IndexType.NONE,
        "compression": CompressionType.NONE,
        "chunk_size": 1 << 20,
    }
    path = write_foreign(tmp_path / "a.mcap", 20_000, **options)
    with Player(path, rate=1e9) as player:
        assert player.run().messages == 20_000

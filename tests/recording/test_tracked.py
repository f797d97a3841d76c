"""Recordings of tracked topics: payloads without stamps, publish times that are right, and origins that stay."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mcap.opcode import Opcode
from mcap.reader import NonSeekingReader, make_reader

import msgq
from msgq.errors import StateError
from msgq.impl.base import clock
from msgq.recording import LogReader, Player, Recorder
from msgq.recording.mcap_io import metadata_keys, origins
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.mcap_io.log_writer import Writer
from msgq.recording.mcap_io.record_structs import MCAP_MAGIC, RECORD_HEAD_STRUCT
from msgq.recording.merge.log_copy import write_merged_log, write_time_slices
from msgq.recording.repair.recover import recover
from tests.recording.logs import build_chunk_record, channel, message, write_unclosed_file

COUNT = 3000


def record(path: Path, **options: Any) -> list[tuple[bytes, int, int]]:
    """Record a tracked and a plain topic; return the tracked messages as a subscriber had them."""
    found = []
    with (
        msgq.pub_sock("tracked", tracked=True) as pub,
        msgq.pub_sock("plain") as plain,
        msgq.sub_sock("tracked", timeout=0) as sub,
        Recorder(path, **{"chunk_bytes": 16384, **options}),
    ):
        for number in range(COUNT):
            pub.send(b"payload %d" % number, origin_time=0 if number % 3 else 10**18 + number)
            if number % 5 == 0:
                plain.send(b"plain")
        while (message := sub.receive_tracked()) is not None:
            found.append((message.data, message.publish_time, message.origin_time))
    return found


@pytest.fixture
def log(prefix: str, tmp_path: Path) -> tuple[Path, list[tuple[bytes, int, int]]]:
    return tmp_path / "log.mcap", record(tmp_path / "log.mcap")


def found_in(log: LogReader) -> list[tuple[bytes, int, int]]:
    return [(m.data, m.publish_time, m.origin_time) for m in log if m.endpoint == "tracked"]


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_tracked_recording_has_payloads_publish_times_and_origins(
    prefix: str, tmp_path: Path, compression: str
) -> None:
    sent = record(tmp_path / "log", compression=compression)
    log = LogReader(tmp_path / "log")
    assert len(sent) == COUNT
    assert found_in(log) == sent
    assert {message.origin_time for message in log if message.endpoint == "plain"} == {0}
    assert not log.problems
    assert {name: info.tracked for name, info in log.endpoints.items()} == {"tracked": True, "plain": False}


def test_tracked_recording_is_readable_by_mcap_readers(log: Any) -> None:
    path, sent = log
    for reader in (make_reader, NonSeekingReader):
        with path.open("rb") as file:
            found = [
                (message.data, message.publish_time)
                for _, channel, message in reader(file, validate_crcs=True).iter_messages()
                if channel.topic == "tracked"
            ]
        assert found == [(data, published) for data, published, _ in sent]


def test_tracked_recording_stores_origin_records_directly_before_chunks(log: Any) -> None:
    path, _ = log
    data, here, seen = path.read_bytes(), len(MCAP_MAGIC), []
    while here < len(data) - len(MCAP_MAGIC):
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(data, here)
        seen.append(opcode)
        here += RECORD_HEAD_STRUCT.size + length
    assert seen.count(origins.ORIGINS_OPCODE) > 1
    followers = {after for before, after in pairwise(seen) if before == origins.ORIGINS_OPCODE}
    assert followers == {Opcode.CHUNK}


def test_batches_and_pieces_have_origins(log: Any) -> None:
    path, sent = log
    reader = LogReader(path, endpoints=["tracked"])
    wanted = [origin for *_, origin in sent]
    for rows in (100, 65536):
        found = [t for b in reader.batches(["origin_time"], rows) for t in b.column("origin_time").to_pylist()]
        assert found == wanted
    pieces = reader.split(1000)
    assert len(pieces) > 3
    assert [message.origin_time for piece in pieces for message in piece] == wanted
    blocks = reader.files[0].blocks
    spans = [(s.offset + s.stored_bytes, t.offset + t.stored_bytes) for s, t in pairwise(blocks)]
    in_spans = [m.origin_time for span in spans for m in LogReader(path, endpoints=["tracked"], span=span)]
    assert in_spans == wanted[-len(in_spans) :]


def _merged(path: Path, out: Path) -> LogReader:
    write_merged_log([LogReader(path, endpoints=["plain"]), LogReader(path, endpoints=["tracked"])], out)
    return LogReader(out)


def _filtered(path: Path, out: Path) -> LogReader:
    write_merged_log([LogReader(path, endpoints=["tracked"])], out, "none")
    return LogReader(out)


def _pieces(path: Path, out: Path) -> LogReader:
    log = LogReader(path)
    assert log.start_time is not None
    assert log.end_time is not None
    assert len(list(write_time_slices(log, out, (log.end_time - log.start_time) // 3, "zstd"))) > 1
    return LogReader(out)


def _recovered(path: Path, out: Path) -> LogReader:
    out.write_bytes(path.read_bytes()[:-100])
    assert recover(out, in_place=True).changed
    return LogReader(out)


def _unfinished(path: Path, out: Path) -> LogReader:
    out.write_bytes(path.read_bytes()[:-100])
    return LogReader(out)


@pytest.mark.parametrize("change", [_merged, _filtered, _pieces, _recovered, _unfinished])
def test_origins_are_kept_by_copies(log: Any, tmp_path: Path, change: Callable[[Path, Path], LogReader]) -> None:
    path, sent = log
    after = change(path, tmp_path / ("pieces" if change is _pieces else "changed.mcap"))
    assert found_in(after) == sent
    assert after.endpoints["tracked"].tracked


def test_invalid_origin_record_loses_only_origins(tmp_path: Path) -> None:
    invalid = RECORD_HEAD_STRUCT.pack(origins.ORIGINS_OPCODE, 8 + 5) + b"msgqorat" + bytes(5)  # a row has 16 bytes
    log = LogReader(
        write_unclosed_file(tmp_path / "a.mcap", invalid, build_chunk_record(channel(1, "a"), message(1, 0, 10)))
    )
    assert [(message.data, message.origin_time) for message in log] == [(b"data", 0)]
    assert "origins" in log.problems[0].reason


def test_hostile_origin_records_do_not_crash_reader(tmp_path: Path) -> None:
    """Places where there is nothing, channels that are not there, sizes that are cut: only what it says is lost."""
    columns = ScanColumns(4)
    columns.channel_code[:], columns.sequence[:], columns.offset[:] = [0, 0, 1, 0], [7, 8, 7, 9], [131, 231, 331, 431]
    rows = struct.pack("<QqQqQq", 300, 5, 100, 99, 2**64 - 1, 1)
    good = RECORD_HEAD_STRUCT.pack(origins.ORIGINS_OPCODE, 8 + len(rows)) + b"msgqorat" + rows
    assert origins.MessageOrigins(good).find_origin_times(columns, slice(0, 4)).tolist() == [99, 0, 5, 0]
    assert origins.MessageOrigins(good[: RECORD_HEAD_STRUCT.size + 8]).find_origin_times(
        columns, slice(0, 2)
    ).tolist() == [0, 0]
    for bad in (b"", good[:-1], good[: RECORD_HEAD_STRUCT.size + 7], good.replace(b"msgqorat", b"msgqorig")):
        with pytest.raises(ValueError, match="no origins"):
            origins.MessageOrigins(bad)


def test_untracked_recording_has_no_origin_record(prefix: str, tmp_path: Path) -> None:
    with msgq.pub_sock("plain") as pub, Recorder(tmp_path / "log.mcap"):
        pub.send(b"x")
    assert b"msgqorat" not in (tmp_path / "log.mcap").read_bytes()


def test_played_tracked_messages_have_ages_of_recorded_messages(prefix: str, tmp_path: Path) -> None:
    start = clock.time_ns()
    ages = [0, 1_000, 5_000_000, 3_000_000_000]
    with Writer(tmp_path / "log.mcap") as writer:
        tracked = metadata_keys.build_channel_metadata(1, metadata_keys.PUBLISHER_SEQUENCE, tracked=True)
        channel = writer.channel("tracked", metadata=tracked)
        plain = writer.channel(
            "plain", metadata=metadata_keys.build_channel_metadata(1, metadata_keys.PUBLISHER_SEQUENCE)
        )
        for number, age in enumerate(ages):
            now = start + number * 1_000_000
            writer.write(channel, b"%d" % number, now, origin_time=now - age if age else 0)
            writer.write(plain, b"plain", now)
    with msgq.sub_sock("tracked", timeout=0) as sub, msgq.sub_sock("plain", timeout=0) as other:
        Player(tmp_path / "log.mcap").run()
        found = [sub.receive_tracked() for _ in ages]
        assert other.receive_many() == [b"plain"] * len(ages)
        assert not other.tracked
    assert [one and one.data for one in found] == [b"0", b"1", b"2", b"3"]
    for one, age in zip(found, ages, strict=True):
        assert one is not None
        assert start < one.publish_time <= clock.time_ns()
        assert age <= one.publish_time - one.origin_time < age + 500_000_000, "within what a send may take"


def test_player_on_untracked_topic_raises_state_error(log: Any) -> None:
    path, _ = log
    with msgq.pub_sock("other", tracked=False) as pub:
        pub.send(b"untracked")
    with pytest.raises(StateError, match="cannot become tracked"):
        Player(path, remap={"tracked": "other"})


@pytest.mark.parametrize("backend", ["fake", "zmq"])
def test_other_backends_play_tracked_messages(log: Any, backend: str, token: str) -> None:
    path, _ = log
    module = {"fake": "tracked", "zmq": "untracked"}[backend]
    reader = LogReader(path, endpoints=["tracked"])
    player = Player(reader, rate=float("inf"), backend=backend, remap={"tracked": f"{token}-{module}"})
    assert player.run().messages == COUNT

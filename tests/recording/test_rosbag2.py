"""Directories of rosbag2: the files that metadata.yaml names, payloads compressed one by one, files as a whole."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.writer import Writer

from msgq.errors import MissingLibraryError, RecordingError
from msgq.recording import LogReader
from msgq.recording.merge.log_copy import write_merged_log
from msgq.recording.player.log_index import LogIndex
from msgq.recording.repair.recover import recover
from tests.recording.logs import by_library, write_foreign

CDR = b"\0\1\0\0"
COUNT = 60


def compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def payload(number: int) -> bytes:
    return CDR + b"%d " % number * 20


def write_bag(path: Path, numbers: range = range(COUNT), packed: bool = False, **options: Any) -> Path:
    """Write a file as rosbag2 does: topics /a and /b of CDR, and one that is none and begins as a frame of zstd."""
    with path.open("wb") as file:
        writer = Writer(file, **{"chunk_size": 1000, **options})
        writer.start("ros2", "another")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        topics = [writer.register_channel(name, "cdr", schema) for name in ("/a", "/b")]
        topics.append(writer.register_channel("/blob", "", 0))
        for n in numbers:
            data = compress(payload(n)) if packed and n % 3 < 2 else payload(n) if n % 3 < 2 else compress(payload(n))
            writer.add_message(topics[n % 3], 10 * n, data, 10 * n, n)
        writer.finish()
    return path


def metadata(directory: Path, *names: str, storage: str = "mcap", mode: str = "", more: str = "") -> Path:
    lines = ["version: 5", f"storage_identifier: {storage}", "relative_file_paths:", *(f"  - {name}" for name in names)]
    lines += [f"compression_format: {'zstd' if mode else repr('')}", f"compression_mode: {mode or repr('')}"]
    text = "".join(f"  {line}\n" for line in lines)
    (directory / "metadata.yaml").write_text(f"rosbag2_bagfile_information:\n{text}{more}")
    return directory


def check(log: LogReader, numbers: range = range(COUNT)) -> None:
    """Check that a log has these messages as they were before anything was compressed, whichever way it is read."""
    expected = [compress(payload(n)) if n % 3 == 2 else payload(n) for n in numbers]
    assert [m.data for m in log] == expected
    batches = log.batches(["log_time", "data"])
    assert [row["data"] for batch in batches for row in sorted(batch.to_pylist(), key=lambda row: row["log_time"])] == (
        expected
    )
    assert log.problems == []


def test_bag_files_are_ordered_by_number(tmp_path: Path) -> None:
    for number in (10, 9, 2, 1):
        write_bag(tmp_path / f"bag_{number}.mcap", range(number, number + 1))
    assert [file.path.name for file in LogReader(tmp_path).files] == [f"bag_{n}.mcap" for n in (1, 2, 9, 10)]


def test_bag_files_follow_metadata_order(tmp_path: Path) -> None:
    for name in ("late.mcap", "early.mcap", "stray.mcap"):
        write_bag(tmp_path / name, range(3))
    metadata(tmp_path, "late.mcap", f"{tmp_path.name}/early.mcap")  # so old ones have it
    assert [file.path.name for file in LogReader(tmp_path).files] == ["late.mcap", "early.mcap"]


def test_foreign_metadata_file_is_ignored(tmp_path: Path) -> None:
    write_bag(tmp_path / "a.mcap")
    (tmp_path / "metadata.yaml").write_text("artist: [")
    check(LogReader(tmp_path))


@pytest.mark.parametrize(
    ("names", "options", "reason"),
    [
        (["a.mcap", "b.mcap"], {}, "name the file 'b.mcap', which does not exist"),
        (["../a.mcap"], {"storage": "rocket"}, "have the storage 'rocket'"),
        (["a.db3"], {"storage": "sqlite3"}, "rosbags-convert --src"),
        ([], {}, "relative_file_paths is missing"),
        (["a.mcap"], {"more": "  x: [" * 10000}, "are invalid: "),
        (["a.mcap"], {"more": "  x: *y\n"}, "are invalid: "),
        (["a.mcap"], {"more": "# " + " " * (5 << 20)}, "are larger than"),
    ],
)
def test_invalid_bag_metadata_raises_recording_error(
    tmp_path: Path, names: list[str], options: dict[str, str], reason: str
) -> None:
    write_bag(tmp_path / "a.mcap")
    metadata(tmp_path, *names, **options)
    with pytest.raises(RecordingError, match=reason):
        LogReader(tmp_path)


def test_bag_metadata_without_yaml_library_names_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bag(tmp_path / "a.mcap")
    monkeypatch.setitem(sys.modules, "yaml", None)
    check(LogReader(tmp_path))
    with pytest.raises(MissingLibraryError, match=r"msgq-bus\[rosbag2\]"):
        LogReader(metadata(tmp_path, "a.mcap"))


def test_sqlite_bag_error_names_converter(tmp_path: Path) -> None:
    for name, begin in (("a.db3", b"SQLite format 3\0"), ("a.bag", b"#ROSBAG V2.0\n")):
        (tmp_path / name).write_bytes(begin + bytes(100))
        with pytest.raises(RecordingError, match=r"rosbags-convert --src .* --dst-storage mcap"):
            LogReader(tmp_path / name)
    with pytest.raises(RecordingError, match=r"SQLite.*rosbags-convert"):
        LogReader(tmp_path)


@pytest.mark.parametrize("chunked", [True, False])
def test_message_compressed_payloads_are_decompressed(tmp_path: Path, chunked: bool) -> None:
    path = write_bag(tmp_path / "a.mcap", packed=True, use_chunking=chunked)
    check(LogReader(path))
    check(LogReader(metadata(tmp_path, "a.mcap", mode="MESSAGE")))
    pieces = pickle.loads(pickle.dumps(LogReader(path, endpoints=["/b"]).split(1)))
    assert [m.data for piece in pieces for m in piece] == [payload(n) for n in range(1, COUNT, 3)]
    assert [m.data for m in LogReader(path, start=300, end=320)] == [payload(30), payload(31)]


def test_compressed_payload_size_is_bounded_and_damage_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    frames = [
        compress(payload(1)),
        compress(payload(2))[:-9] + bytes(9),
        compress(bytes(1 << 24)),
        compress(payload(3)),
    ]
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frames.append(stream.compress(bytes(1 << 24)) + stream.flush())
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=1 << 20)
        writer.start("ros2")
        topic = writer.register_channel("/a", "cdr", 0)
        for number, data in enumerate(frames):
            writer.add_message(topic, number, data, number)
        writer.finish()
    log = LogReader(path, max_chunk_bytes=1 << 20)
    assert [m.data for m in log] == [payload(1), payload(3)]
    reasons = [problem.reason for problem in log.problems]
    assert len(reasons) == 3
    assert all(reason.startswith("a message was skipped: ") for reason in reasons)
    assert "max_chunk_bytes" in reasons[1]
    assert len(list(LogReader(path))) == 4


def test_copies_of_compressed_messages_have_decompressed_payloads(tmp_path: Path) -> None:
    """Others would need a metadata.yaml that says how to read them."""
    write_merged_log([LogReader(write_bag(tmp_path / "a.mcap", packed=True))], tmp_path / "b.mcap")
    data = [data for topic, data, _ in by_library(tmp_path / "b.mcap") if topic != "/blob"]
    assert data == [payload(n) for n in range(COUNT) if n % 3 < 2]


def test_log_index_gives_decompressed_payload_size(tmp_path: Path) -> None:
    large = CDR + bytes(1 << 20)
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start("ros2")
        writer.add_message(writer.register_channel("/a", "cdr", 0), 1, compress(large), 1)
        writer.finish()
    assert LogIndex(LogReader(path)).endpoints["/a"].largest_payload_bytes >= len(large)


def test_attachments_of_compressed_file_are_readable(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "a.mcap.zstd"
    with plain.open("wb") as file:
        writer = Writer(file)
        writer.start()
        writer.add_attachment(1, 2, "notes", "text/plain", b"hello")
        writer.finish()
    path.write_bytes(compress(plain.read_bytes()))
    log = LogReader(path)
    assert [attachment.read() for attachment in log.attachments] == [b"hello"]


@pytest.mark.parametrize("suffix", [".zstd", ".zst"])
def test_compressed_file_has_same_messages_as_uncompressed_file(tmp_path: Path, suffix: str) -> None:
    plain = write_foreign(tmp_path / "plain")
    path = tmp_path / f"a.mcap{suffix}"
    path.write_bytes(compress(plain.read_bytes()))
    for log in (LogReader(path), LogReader(tmp_path), *pickle.loads(pickle.dumps(LogReader(path).split(1)))):
        assert [(m.endpoint, m.data, m.log_time) for m in log] == by_library(plain)
        assert log.messages == 300
        assert log.problems == []
    assert LogReader(path).files[0].is_complete


def test_compressed_file_next_to_its_source_is_ignored(tmp_path: Path) -> None:
    data = write_bag(tmp_path / "a_0.mcap").read_bytes()
    (tmp_path / "a_0.mcap.zstd").write_bytes(compress(data)[:-100])  # rosbag2 was killed meanwhile
    check(LogReader(tmp_path))


def test_bag_of_compressed_files_is_read(tmp_path: Path) -> None:
    for number in range(2):
        path = write_bag(tmp_path / f"bag_{number}.mcap", range(30 * number, 30 * number + 30), packed=True)
        (tmp_path / f"bag_{number}.mcap.zstd").write_bytes(compress(path.read_bytes()))
        path.unlink()
    check(LogReader(metadata(tmp_path, "bag_0.mcap.zstd", "bag_1.mcap.zstd", mode="FILE")))


def descriptors() -> int:
    gc.collect()  # logs are cycles
    return len(os.listdir("/proc/self/fd"))


def test_decompressed_temporary_file_is_freed_with_last_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    path = tmp_path / "a.mcap.zstd"
    path.write_bytes(compress(write_bag(tmp_path / "plain").read_bytes()))
    before = descriptors()
    log = LogReader(path)
    pieces = log.split(1)
    another = LogReader(path, endpoints=["/a"])
    assert descriptors() == before + 1
    assert len(pieces) == 1
    assert list((tmp_path / "copies").iterdir()) == []
    del log, another
    check(pieces[0])
    del pieces
    assert descriptors() == before


def test_damaged_compressed_file_is_read_up_to_damage(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    with plain.open("wb") as file:
        writer = Writer(file, chunk_size=10_000)
        writer.start()
        topic = writer.register_channel("a", "", 0)
        for n in range(1000):
            writer.add_message(topic, n, os.urandom(1000), n, n)
        writer.finish()
    data, path = compress(plain.read_bytes()), tmp_path / "a.mcap.zstd"
    damaged = bytearray(data)
    damaged[-700_000:-600_000] = b"\xff" * 100_000
    junk = compress(plain.read_bytes()[:500_000]) + b"\1" * 500_000
    for kind, bad in {"cut": data[:-600_000], "damaged": bytes(damaged), "junk": junk}.items():
        path.write_bytes(bad)
        log = LogReader(path)
        found = [m.sequence for m in log]
        assert 100 < len(found) < 500, kind
        assert found == list(range(len(found)))
        assert any("the compressed file is damaged" in str(problem) for problem in log.problems), kind


def test_decompression_without_disk_space_error_names_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mcap.zstd"
    path.write_bytes(compress(write_bag(tmp_path / "plain").read_bytes()))
    monkeypatch.setattr("msgq.recording.mcap_io.file_source._DISK_RESERVE_BYTES", 1 << 62)
    before = descriptors()
    with pytest.raises(RecordingError, match=r"has no room .* TMPDIR") as raised:
        LogReader(path)
    assert raised.value.errno is not None
    del raised
    assert descriptors() == before


def test_recover_refuses_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap.zstd"
    path.write_bytes(compress(write_bag(tmp_path / "plain").read_bytes()))
    with pytest.raises(RecordingError, match="zstd -d"):
        recover(path)
    assert sorted(os.listdir(tmp_path)) == ["a.mcap.zstd", "plain"]


@pytest.mark.ci
@pytest.mark.parametrize("name", ["a.mcap", "a.mcap.zstd", "metadata.yaml"])
@settings(max_examples=60)
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_of_bag_do_not_crash_reader(tmp_path: Path, name: str, changes: list[tuple[int, int]]) -> None:
    plain = write_bag(tmp_path / "a.mcap", range(30), packed=True)
    (tmp_path / "a.mcap.zstd").write_bytes(compress(plain.read_bytes()))
    path = metadata(tmp_path, "a.mcap") / name
    data = bytearray(path.read_bytes())
    for place, change in changes:
        data[place % len(data)] ^= change
    path.write_bytes(data)
    with contextlib.suppress(RecordingError):
        log = LogReader(tmp_path if name == "metadata.yaml" else path)
        found = list(log)
        assert len(found) == 30 or log.problems
        assert sum(batch.num_rows for batch in log.batches()) == len(found)


@pytest.mark.ci
@pytest.mark.parametrize("mode", ["NONE", "FILE", "MESSAGE", "STORAGE"])
def test_bags_of_rosbags_library_are_read(tmp_path: Path, mode: str) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
    bag = rosbag2.Writer(tmp_path / "bag", version=9, storage_plugin=rosbag2.StoragePlugin.MCAP)
    bag.set_compression(rosbag2.CompressionMode[mode], rosbag2.CompressionFormat.ZSTD)
    with bag:
        topic = bag.add_connection("/a", "std_msgs/msg/String", msgdef="string data", rihs01="RIHS01_" + "0" * 64)
        for n in range(COUNT):
            bag.write(topic, 10 * n, payload(n))
    log = LogReader(tmp_path / "bag")
    assert [m.data for m in log] == [payload(n) for n in range(COUNT)]
    assert log.problems == []
    with rosbag2.Reader(tmp_path / "bag") as reader:
        assert [(time, bytes(data)) for _, time, data in reader.messages()] == [(m.log_time, m.data) for m in log]

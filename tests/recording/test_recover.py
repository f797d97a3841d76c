"""Recovery: other readers take the file, nothing readable is lost, and whatever happens meanwhile harms nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from mcap import records
from mcap.reader import make_reader

from msgq.common.schema import Schema
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from msgq.recording.mcap_io.record_structs import build_summary_section as summary
from msgq.recording.mcap_io.record_structs import encode_records as record
from msgq.recording.repair import recover as module
from msgq.recording.repair.doctor import examine
from msgq.recording.repair.recover import Recovery, recover, reindex
from msgq.recording.repair.repair_plan import RepairPlan
from tests.cases import each_case
from tests.recording.logs import (
    FOREIGN,
    build_chunk_record,
    build_recording_head,
    by_library,
    channel,
    encode_parts,
    message,
    write_foreign,
    write_log,
    write_unclosed_file,
)
from tests.support import in_fork


def found(path: Path) -> list[tuple[str, bytes, int]]:
    return [(m.endpoint, m.data, m.log_time) for m in LogReader(path)]


def list_errors(path: Path) -> list[str]:
    return [str(one) for one in examine(path) if one.severity == "error"]


def check_truncation(path: Path, expected: list[tuple[str, bytes, int]]) -> None:
    log = LogReader(path)
    assert [(m.endpoint, m.data, m.log_time) for m in log] == expected
    assert log.files[0].is_complete
    assert not log.problems
    assert by_library(path) == expected
    assert not list_errors(path)
    assert not recover(path).changed


def read_output(done: Recovery) -> str:
    return "\n".join(done.actions)


def flip_bits(path: Path, place: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


@each_case("kind", ["zstd", "lz4", "uncompressed", "unchunked", "one chunk", "no summary"])
@each_case("share", [0.2, 0.5, 0.8, 0.99])
def test_recover_of_truncated_file_writes_complete_file(tmp_path: Path, kind: str, share: float) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])
    os.truncate(path, int(path.stat().st_size * share))
    before = found(path)
    done = recover(path, in_place=True)
    assert done.messages == len(before)
    check_truncation(path, before)


@pytest.mark.ci
def test_recover_of_file_truncated_in_index_or_end_keeps_all_messages(tmp_path: Path) -> None:
    whole = write_foreign(tmp_path / "whole.mcap", count=60)
    data, path = whole.read_bytes(), tmp_path / "a.mcap"
    last = LogReader(whole).files[0].blocks[-1]
    for size in range(last.offset + last.stored_bytes - 3, len(data), 37):
        path.write_bytes(data[:size])
        before = found(path)
        recover(path, in_place=True)
        check_truncation(path, before)


@pytest.mark.parametrize("in_place", [True, False])
def test_recover_with_flipped_bit_in_first_chunk_loses_only_that_chunk(tmp_path: Path, in_place: bool) -> None:
    """Its schemas and channels are in the summary as well, which has to outlive the recovery."""
    path = write_foreign(tmp_path / "a.mcap")
    first = LogReader(path).files[0].blocks[0]
    flip_bits(path, first.offset + 70)
    before = found(path)
    assert 280 < len(before) < 300
    done = recover(path, in_place=in_place)
    assert "the CRC of the chunk is wrong" in read_output(done) or "decompress" in read_output(done)
    assert "copied 4 schemas and channels from the summary to the data" in read_output(done)
    check_truncation(Path(done.output), before)
    assert {m.schema.name for m in LogReader(done.output) if m.schema} == {"Number"}


def test_recover_writes_new_file_and_overwrites_none(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    os.truncate(path, path.stat().st_size // 2)
    content, before = path.read_bytes(), found(path)
    done = recover(path)
    assert (done.path, done.output, done.changed) == (str(path), str(tmp_path / "a.recovered.mcap"), True)
    assert path.read_bytes() == content
    check_truncation(tmp_path / "a.recovered.mcap", before)
    for output in (None, tmp_path / "a.recovered.mcap", path):
        with pytest.raises(RecordingError, match="exists"):
            recover(path, output)
    with pytest.raises(InvalidValueError, match="exclude each other"):
        recover(path, tmp_path / "b.mcap", in_place=True)
    assert sorted(os.listdir(tmp_path)) == ["a.mcap", "a.recovered.mcap"]


def test_recover_of_intact_file_leaves_file_unchanged(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    before = path.read_bytes()
    for in_place in (True, False):
        done = recover(path, in_place=in_place)
        assert (done.changed, done.messages, done.output, done.remaining) == (False, 300, str(path), ())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.mcap"]
    recover(path, tmp_path / "b.mcap")
    assert (tmp_path / "b.mcap").read_bytes() == before


@pytest.mark.parametrize("place", ["payload", "length", "opcode"])
def test_recover_skips_damage_in_middle(tmp_path: Path, place: str) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    damaged = LogReader(path).files[0].blocks[4]
    flip_bits(path, damaged.offset + {"payload": 80, "length": 7, "opcode": 0}[place], 0x40 if place != "opcode" else 6)
    expected = [m for m in found(path) if not damaged.start_time <= m[2] <= damaged.end_time]
    done = recover(path, in_place=True)
    assert done.damaged_bytes >= damaged.stored_bytes
    check_truncation(path, expected)
    assert len(expected) > 280


# Files that seemed whole and were damaged


def test_recover_with_damaged_last_chunk_keeps_other_chunks(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    last = LogReader(path).files[0].blocks[-1]
    flip_bits(path, last.offset + last.stored_bytes - 5)
    before = found(path)
    done = recover(path, in_place=True)
    assert "skipped 1 damaged places" in read_output(done)
    check_truncation(path, before)


def test_recover_rewrites_damaged_message_index(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    chunk_end = (lambda block: block.offset + block.stored_bytes)(LogReader(path).files[0].blocks[3])
    flip_bits(path, chunk_end + 30)
    before = found(path)
    assert len(before) == 300
    done = recover(path, in_place=True)
    assert "the message indexes of 1 chunks: the message index of channel" in read_output(done)
    check_truncation(path, before)
    with path.open("rb") as file:  # this reader uses the message indexes
        assert sum(1 for _ in make_reader(file).iter_messages(topics=["topic1"], starting_at=2000)) == 67


@pytest.mark.parametrize("kind", ["no index", "no summary"])
def test_recover_writes_missing_index_and_summary(tmp_path: Path, kind: str) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])
    before = found(path)
    done = recover(path, in_place=True)
    assert "the message indexes of 24 chunks: the first at byte 32: it had none" in read_output(done)
    assert ("no summary" in read_output(done)) == (kind == "no summary")
    check_truncation(path, before)
    with path.open("rb") as file:
        found_summary = make_reader(file).get_summary()
    assert found_summary is not None
    assert found_summary.statistics is not None
    assert (found_summary.statistics.message_count, len(found_summary.chunk_indexes)) == (300, 24)


def test_recover_corrects_data_crc(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap", use_chunking=False, enable_data_crcs=True)
    flip_bits(path, path.read_bytes().index(b'{"n": 77}') + 6)
    before = found(path)
    assert b'{"n": 67}' in {m[1] for m in before}
    done = recover(path, in_place=True)
    assert "the stated CRC of the data is" in read_output(done)
    check_truncation(path, before)


def test_recover_corrects_statistics(tmp_path: Path) -> None:
    parts = (build_chunk_record(channel(1, "a"), message(1, 0, 5)),)
    data = build_recording_head() + b"".join(parts) + encode_parts(records.DataEnd(0))
    wrong = records.Statistics(0, 1, {1: 7}, 1, 7, 5, 0, 5, 0)
    path = tmp_path / "a.mcap"
    path.write_bytes(data + summary(len(data), [(11, record(wrong))]))
    done = recover(path, in_place=True)
    assert "message_count is stated as 7; the actual value is 1" in str(done)
    check_truncation(path, [("a", b"data", 5)])


# ChannelRegistry


def test_recover_keeps_undescribed_messages_as_bytes(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN["no summary"])
    flip_bits(path, LogReader(path).files[0].blocks[0].offset + 70)
    assert not found(path)
    done = recover(path)
    assert "3 channels or schemas without a description" in read_output(done)
    after = found(Path(done.output))
    assert 280 < len(after) == len(by_library(Path(done.output)))
    assert {m[0] for m in after} == {"undescribed_1", "undescribed_2", "undescribed_3"}
    assert not list_errors(Path(done.output))


def test_recover_takes_damaged_channel_record_from_summary(tmp_path: Path) -> None:
    """Nothing else covers records outside of chunks; a summary has a CRC."""
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN["unchunked"])
    before = found(path)
    flip_bits(path, path.read_bytes().index(b"topic1") + 2, 4)
    done = recover(path)
    assert "the summary, whose CRC is correct, has a different record" in read_output(done)
    check_truncation(Path(done.output), before)


def test_field_beyond_end_of_record_is_damage(tmp_path: Path) -> None:
    """The library takes as many bytes as there are, in a record by itself, and reads on in a file."""
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN["unchunked"])
    before = found(path)
    flip_bits(path, path.read_bytes().index(b"jsonschema") + len("jsonschema") + 3)
    done = recover(path)
    assert "a schema: a field is invalid" in read_output(done)
    check_truncation(Path(done.output), before)


def test_recover_keeps_changed_channels_of_concatenated_files(tmp_path: Path) -> None:
    """As in files that were put one behind the other: what a summary says is of the last one only."""
    one = write_foreign(tmp_path / "1.mcap", 30)
    with (tmp_path / "a.mcap").open("wb") as file:
        other = write_log_of_another(tmp_path / "2.mcap")
        file.write(one.read_bytes() + other.read_bytes())
    path = tmp_path / "a.mcap"
    before = found(path)
    assert {m[0] for m in before} == {"topic0", "topic1", "topic2", "other"}
    done = recover(path)
    assert found(Path(done.output)) == before
    assert any("has two different descriptions" in one.text for one in done.remaining)


def write_log_of_another(path: Path) -> Path:
    from mcap.writer import Writer

    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        writer.add_message(writer.register_channel("other", "json", 0), 9000, b"{}", 9000)
        writer.finish()
    return path


# Chunks of which a part can be read


def test_recover_keeps_readable_part_of_chunk(tmp_path: Path) -> None:
    bad = build_chunk_record(channel(1, "a"), message(1, 1, 6, b"before"), bytes(1000))
    path = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(channel(1, "a"), message(1, 0, 5)),
        bad,
        build_chunk_record(message(1, 2, 7)),
    )
    before = found(path)
    assert [m[2] for m in before] == [5, 6, 7]
    done = recover(path)
    assert "1 chunks with their valid records" in read_output(done)
    check_truncation(Path(done.output), before)


def test_recover_removes_invalid_records_from_chunk(tmp_path: Path) -> None:
    short = struct.pack("<BQ", 5, 10) + bytes(10)
    no_schema = encode_parts(records.Schema(0, b"", "", "none"))
    bad = build_chunk_record(channel(1, "a"), message(1, 0, 5), short, no_schema, message(1, 1, 6))
    path = write_unclosed_file(tmp_path / "a.mcap", bad)
    done = recover(path)
    check_truncation(Path(done.output), [("a", b"data", 5), ("a", b"data", 6)])


def test_recover_corrects_chunk_times(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    before = found(path)
    flip_bits(path, LogReader(path).files[0].blocks[2].offset + 9 + 1)
    done = recover(path)
    assert "the stated times are" in read_output(done)
    check_truncation(Path(done.output), before)


def test_recover_rewrites_chunk_without_lz4_end_mark(tmp_path: Path) -> None:
    content = encode_parts(channel(1, "a"), message(1, 0, 5))
    packed = lz4.frame.compress(content)[:-4]  # without its end mark
    bad = encode_parts(records.Chunk("lz4", packed, 5, 5, zlib.crc32(content), len(content)))
    path = write_unclosed_file(tmp_path / "a.mcap", bad)
    done = recover(path)
    assert "the lz4 frame has no end mark" in read_output(done)
    check_truncation(Path(done.output), found(path))


def test_record_length_that_covers_a_known_chunk_is_damage(tmp_path: Path) -> None:
    """A record's length may lead over a chunk to where another one begins; nothing but the summary tells then."""
    private = RECORD_HEAD_STRUCT.pack(0x90, 4) + b"abcd"
    hidden = build_chunk_record(message(1, 1, 6))
    write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(channel(1, "a"), message(1, 0, 5)),
        private,
        hidden,
        build_chunk_record(message(1, 2, 7)),
    )
    path = Path(recover(tmp_path / "a.mcap").output)
    before, data = found(path), path.read_bytes()
    at = data.index(private)
    following = LogReader(path).files[0].blocks[2].offset
    path.write_bytes(
        data[:at]
        + RECORD_HEAD_STRUCT.pack(0x90, following - at - RECORD_HEAD_STRUCT.size)
        + data[at + RECORD_HEAD_STRUCT.size :]
    )
    assert len(found(path)) == 2
    check_truncation(Path(recover(path).output), before)


def test_recover_moves_messages_into_chunks(tmp_path: Path) -> None:
    loose = [message(1, i, 10 + i) for i in range(5)]
    path = write_unclosed_file(tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 5)), *loose)
    done = recover(path)
    assert done.chunks == 2
    check_truncation(Path(done.output), found(path))


# Nothing is left of what fails, and nothing is harmed


def truncate_file(path: Path) -> Path:
    write_unclosed_file(path, *(build_chunk_record(channel(1, "a"), message(1, i, i)) for i in range(5)), b"\6tail")
    return path


@pytest.fixture(params=["unnamed", "named"])
def _kind_of_file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to write: not every file system has files without a name."""
    if request.param == "named":
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)


@pytest.mark.usefixtures("_kind_of_file")
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("way", ["new", "output", "in place"])
def test_failed_recover_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, way: str
) -> None:
    path = truncate_file(tmp_path / "a.mcap")
    before = path.read_bytes()
    real, calls = os.write, 0

    def failing(fd: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise failure
        return real(fd, data)

    monkeypatch.setattr(os, "write", failing)
    expected = RecordingError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as error:
        recover(path, tmp_path / "b.mcap" if way == "output" else None, in_place=way == "in place")
    if expected is RecordingError:
        assert "No space left" in str(error.value)
        assert "is unchanged" in str(error.value)
    assert calls == 4
    assert os.listdir(tmp_path) == ["a.mcap"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("in_place", [True, False])
def test_recover_with_fewer_messages_than_expected_keeps_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    path = truncate_file(tmp_path / "a.mcap")
    before = path.read_bytes()

    class Careless(RepairPlan):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            del self.steps[3]

    monkeypatch.setattr(module, "RepairPlan", Careless)
    with pytest.raises(RecordingError, match=r"only 4 of 5 messages would remain"):
        recover(path, in_place=in_place)
    assert os.listdir(tmp_path) == ["a.mcap"]
    assert path.read_bytes() == before


CALLS = ("open", "write", "pwrite", "fsync", "fchmod", "fchown", "link", "replace", "rename", "unlink", "ftruncate")


def killed_at(step: int, work: Callable[[], object]) -> int:
    """Run in a child that is killed before its so-manieth system call that could change anything."""

    def child() -> None:
        left = step

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        for name in CALLS:
            setattr(os, name, dying(getattr(os, name)))
        work()

    return in_fork(child)


@pytest.mark.ci
@pytest.mark.usefixtures("_kind_of_file")
@pytest.mark.parametrize("in_place", [True, False])
def test_recover_killed_at_each_step_loses_no_message(tmp_path: Path, in_place: bool) -> None:
    """What: a recovery is killed before each call that could change a file, of one whose first chunk is damaged.

    Why: its schemas and channels are in the summary only, which a recovery replaces.

    Failure would mean: what was readable before is not readable any more, or a half file has got the name.
    """
    original = write_foreign(tmp_path / "original", 100)
    flip_bits(original, LogReader(original).files[0].blocks[0].offset + 70)
    content, before = original.read_bytes(), found(original)
    folder, seen = tmp_path / "folder", set()
    for step in range(1, 200):
        folder.mkdir()
        path = folder / "a.mcap"
        path.write_bytes(content)
        code = killed_at(step, partial(recover, path, in_place=in_place))
        assert found(path) == before
        left = set(os.listdir(folder)) - {"a.mcap"}
        for name in left:
            if name == "a.recovered.mcap":
                check_truncation(folder / name, before)
                assert path.read_bytes() == content
            else:
                assert name.startswith(".a")  # no reader takes this name for a log
        seen.add(path.read_bytes() == content)
        if in_place:
            recover(path, in_place=True)
            check_truncation(path, before)
        for name in os.listdir(folder):
            (folder / name).unlink()
        folder.rmdir()
        if code == 0:
            assert step > 10
            assert seen == ({True, False} if in_place else {True})
            return
        assert code == -signal.SIGKILL
    pytest.fail("it never ended")


def test_recover_in_place_keeps_inode(tmp_path: Path) -> None:
    path = truncate_file(tmp_path / "a.mcap")
    path.chmod(0o640)
    (tmp_path / "link.mcap").symlink_to(path)
    recover(tmp_path / "link.mcap", in_place=True)
    assert (tmp_path / "link.mcap").is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    check_truncation(path, found(path))


def test_recover_refuses_file_in_use(tmp_path: Path) -> None:
    path = write_unclosed_file(tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 0)))
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RecordingError, match="is still being written"):
            recover(path, in_place=True)
        check_truncation(Path(recover(path).output), found(path))  # messages until now


def test_recover_of_empty_log_writes_complete_file(tmp_path: Path) -> None:
    path = write_unclosed_file(tmp_path / "a.mcap")
    assert recover(path, in_place=True).messages == 0
    check_truncation(path, [])


def test_recover_of_other_file_type_leaves_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    for in_place in (True, False):
        with pytest.raises(RecordingError, match="is not an MCAP file"):
            recover(path, in_place=in_place)
    assert path.read_text() == "hello"
    assert os.listdir(tmp_path) == ["text"]


# Indexes anew


@pytest.mark.parametrize("kind", FOREIGN)
def test_reindex_adds_all_indexes_and_keeps_content(tmp_path: Path, kind: str) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])
    before = found(path)
    done = reindex(path)
    assert done.output == str(tmp_path / "a.reindexed.mcap")
    assert done.changed
    assert not [one for one in examine(Path(done.output)) if one.rule != "order"]
    assert found(Path(done.output)) == before
    with Path(done.output).open("rb") as file:
        reader = make_reader(file)
        assert sum(1 for _ in reader.iter_messages(["topic2"])) == 100
        found_summary = reader.get_summary()
    assert found_summary is not None
    assert all(index.message_index_offsets for index in found_summary.chunk_indexes)
    assert [one.name for one in found_summary.metadata_indexes] == ["note"]


def test_reader_finds_as_many_messages_as_recover_if_the_first_chunk_lost_bytes(tmp_path: Path) -> None:
    schema = Schema("Imu", "json", b"{}")
    messages = (("imu", 1000 + number, number.to_bytes(64, "big")) for number in range(2000))
    data = write_log(tmp_path / "a.mcap", *messages, schemas={"imu": schema}).read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(data[:80] + data[90:])  # only the first chunk and the summary describe the channel
    log = LogReader(cut)
    found = [message.log_time for message in log]
    assert 1900 < len(found) < 2000
    assert {message.schema.name for message in log if message.schema} == {"Imu"}
    recovery = recover(cut)
    assert len(found) == recovery.messages
    assert found == [message.log_time for message in LogReader(recovery.output)]

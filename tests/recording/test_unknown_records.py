"""Fields and records that MCAP does not define yet, or leaves to applications, survive each command that copies."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

from msgq.recording import LogReader, examine, recover
from msgq.recording.mcap_io.record_structs import ExtensibleChannel, ExtensibleSchema
from msgq.recording.merge.log_copy import write_merged_log
from tests.cases import each_case
from tests.command import run
from tests.recording import raw_mcap
from tests.recording.logs import build_chunk_record, channel, write_unclosed_file
from tests.recording.logs import message as sent
from tests.recording.raw_mcap import FIRST_PRIVATE_OPCODE, RESERVED, Found, RawFile, record, records

TAIL = b"\x01\xff\xff"
KINDS = {
    "header": raw_mcap.HEADER,
    "schema": raw_mcap.SCHEMA,
    "channel": raw_mcap.CHANNEL,
    "chunk": raw_mcap.CHUNK,
    "message index": raw_mcap.MESSAGE_INDEX,
    "chunk index": raw_mcap.CHUNK_INDEX,
    "attachment": raw_mcap.ATTACHMENT,
    "attachment index": raw_mcap.ATTACHMENT_INDEX,
    "metadata": raw_mcap.METADATA,
    "metadata index": raw_mcap.METADATA_INDEX,
    "statistics": raw_mcap.STATISTICS,
    "summary offset": raw_mcap.SUMMARY_OFFSET,
}
KEPT = {"header", "schema", "channel", "attachment", "metadata"}
UNKNOWN = tuple(record(opcode, b"what an application says") for opcode in (0x10, RESERVED, FIRST_PRIVATE_OPCODE, 0xFF))


def filter_file(path: Path, output: Path, *options: str) -> list[Path]:
    run("bag", "filter", path, "-o", output, "--compression", "none", *options)
    return [output]


def filtered_by_endpoint(path: Path, output: Path) -> list[Path]:
    return filter_file(path, output, "--endpoint", "a")


def filtered_by_time(path: Path, output: Path) -> list[Path]:
    """Leave out the first message, so that the first chunk is not copied whole."""
    return filter_file(path, output, "--start", "0.000000001")


def merge_files(path: Path, output: Path) -> list[Path]:
    """Merge a file with one whose chunks overlap with its own in time."""
    run("bag", "merge", path, path.with_name("other.mcap"), "-o", output, "--compression", "none")
    return [output]


def cut_file(path: Path, output: Path) -> list[Path]:
    folder = output.with_suffix("")
    run("bag", "split", path, "-o", folder, "--split-seconds", raw_mcap.STEP / 1e9, "--compression", "none")
    pieces = sorted(folder.iterdir())
    assert len(pieces) == 3
    return pieces


def recover_file(path: Path, output: Path) -> list[Path]:
    """Recover a file whose data have another CRC than their end says."""
    data = path.read_bytes()
    at = data.rindex(struct.pack("<BQ", raw_mcap.DATA_END, 4)) + 9
    path.write_bytes(data[:at] + b"abcd" + data[at + 4 :])
    run("bag", "recover", path, "-o", output)
    return [output]


def mend_chunk_times(path: Path, output: Path) -> list[Path]:
    """Recover a file whose first chunk says another time than its messages have."""
    data = path.read_bytes()
    at = data.index(struct.pack("<QQ", raw_mcap.STEP + 1, raw_mcap.STEP + 5))
    path.write_bytes(data[:at] + bytes(8) + data[at + 8 :])
    run("bag", "recover", path, "-o", output)
    return [output]


def reindex_file(path: Path, output: Path) -> list[Path]:
    run("bag", "reindex", path, "-o", output)
    return [output]


@dataclass(frozen=True)
class Verb:
    """A command that copies. `keeps`: kinds of records that are the same in the copy, of the first chunk."""

    copy: Callable[[Path, Path], list[Path]]
    keeps: set[str]


VERBS = {
    "filter": Verb(filter_file, KEPT | {"chunk", "message index"}),
    "filter --endpoint": Verb(filtered_by_endpoint, KEPT),
    "filter --start": Verb(filtered_by_time, KEPT),
    "merge": Verb(merge_files, KEPT),
    "split": Verb(cut_file, KEPT | {"chunk", "message index"}),
    "recover": Verb(recover_file, KEPT | {"chunk", "message index"}),
    "recover a chunk": Verb(mend_chunk_times, KEPT | {"chunk"}),
    "reindex": Verb(reindex_file, KEPT | {"chunk"}),
}
REPAIRS = [verb for name, verb in VERBS.items() if name.startswith("re")]


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Verb:
    return VERBS[request.param]


def copies(verb: Verb, folder: Path, **options: Any) -> list[Path]:
    """Write a file, and another one 2 ns later; return what a command makes of them, which is whole.

    The library `mcap` takes unknown fields within chunks for records. A repair keeps the content of chunks.
    """
    (folder / "source.mcap").write_bytes(RawFile(**options).bytes())
    (folder / "other.mcap").write_bytes(RawFile(**options, begin=raw_mcap.STEP + 2).bytes())
    made = verb.copy(folder / "source.mcap", folder / "copy.mcap")
    for path in made:
        assert [str(one) for one in examine(path) if one.severity == "error"] == []
        log = LogReader(path)
        sent = [one.data for one in log]
        assert log.problems == []
        is_repaired_content = verb in REPAIRS and not {raw_mcap.SCHEMA, raw_mcap.CHANNEL}.isdisjoint(
            options.get("tails", ())
        )
        assert is_repaired_content or sent == by_library(path)
    return made


def by_library(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [sent.data for _, _, sent in make_reader(file, validate_crcs=True).iter_messages()]


def first_chunk(found: list[Found]) -> list[Found]:
    """Leave out all but the first chunk, with its message indexes."""
    at = [number for number, one in enumerate(found) if one.opcode == raw_mcap.CHUNK]
    return [one for number, one in enumerate(found) if number < at[1]] if len(at) > 1 else found


@each_case("kind", KINDS)
def test_copy_keeps_unknown_fields_except_in_its_own_records(verb: Verb, kind: str, tmp_path: Path) -> None:
    (folder := tmp_path / kind).mkdir()
    for number, path in enumerate(copies(verb, folder, tails={KINDS[kind]: TAIL})):
        there = records(path)
        if kind in ("chunk", "message index"):
            there = first_chunk(there)
        if verb not in REPAIRS:  # a copy stores the fields of schemas and channels outside of chunks
            there = [one for one in there if one.section != "chunk"]
        found = [one.body for one in there if one.opcode == KINDS[kind]]
        if kind == "metadata":  # msgq adds one of its own
            found = [body for body in found if b"device" in body]
        wanted = kind in verb.keeps
        assert found or number, "nothing to look at"
        assert [body.endswith(TAIL) for body in found] == [wanted] * len(found)
    log = LogReader(folder / "source.mcap")
    assert [one.read() for one in log.attachments] == [b"data"]
    assert log.problems == []


@pytest.mark.parametrize("kind", ["schema", "channel"])
def test_copy_keeps_unknown_fields_of_summary(verb: Verb, kind: str, tmp_path: Path) -> None:
    for path in copies(verb, tmp_path, tails={KINDS[kind]: TAIL}, is_bare=True):
        found = [one.body for one in records(path) if (one.section, one.opcode) == ("summary", KINDS[kind])]
        assert found
        assert all(body.endswith(TAIL) for body in found)


@each_case("section", ["beside", "inside", "behind"])
def test_copy_keeps_unknown_records(verb: Verb, section: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {section: UNKNOWN}
    (folder := tmp_path / section).mkdir()
    made = copies(verb, folder, **options)
    where = {"beside": "data", "behind": "summary", "inside": "chunk" if "chunk" in verb.keeps else "data"}[section]
    for path in made[:1] if section == "inside" else made:
        found = [one for one in records(path) if one.opcode in {record[0] for record in UNKNOWN}]
        wanted = [Found(where, record[0], record[9:]) for record in UNKNOWN]
        if verb.copy is merge_files:  # merged from two files
            assert sorted(found) == sorted(wanted * 2)
        else:
            assert found == wanted


@pytest.mark.parametrize("schema_id", [0, 1])
def test_unknown_fields_stay_with_their_channel_or_schema(tmp_path: Path, schema_id: int) -> None:
    chunks = []
    for number, (name, tail) in enumerate([("a", TAIL), ("b", b"")], 1):
        schema = ExtensibleSchema(id=1, name=name, encoding="jsonschema", data=b"{}", unknown_fields=tail)
        described = ExtensibleChannel(1, name, "json", {}, schema_id, tail)
        chunks.append(build_chunk_record(*([schema] if schema_id else []), described, sent(1, number, number)))
    path = write_unclosed_file(tmp_path / "a.mcap", *chunks)
    log = LogReader(path)
    assert [one.endpoint for one in log] == ["a", "b"]
    assert log.files[0].registry.unknown_fields == {}
    copies = filter_file(path, tmp_path / "b.mcap", "--endpoint", "b")
    copy = LogReader(*copies)
    assert [one.endpoint for one in copy] == ["b"]
    assert copy.files[0].registry.unknown_fields == {}


@pytest.mark.ci
def test_copy_bounds_unknown_records_within_chunks(tmp_path: Path) -> None:
    """They are not compressed in the copy, so chunks of a few bytes could fill a disk."""
    large = [
        build_chunk_record(channel(1, "a"), sent(1, n, n), record(FIRST_PRIVATE_OPCODE, bytes(12 << 20)), sent(1, n, n))
        for n in (1, 2, 3)
    ]
    many = [
        build_chunk_record(channel(1, "a"), sent(1, 9, 9), record(FIRST_PRIVATE_OPCODE, b"") * 150_000, sent(1, 9, 9))
    ]
    for number, chunks in enumerate((large, many)):
        path, copy = write_unclosed_file(tmp_path / f"{number}.mcap", *chunks), tmp_path / f"copy{number}.mcap"
        log = LogReader(path)
        write_merged_log([log], copy, "lz4")  # so that no chunk is copied whole
        assert copy.stat().st_size < 33 << 20
        assert [
            "of chunk records that MCAP does not define are copied" in problem.reason for problem in log.problems
        ] == [True]
        assert LogReader(copy).messages == 2 * len(chunks)


def test_unknown_records_are_not_reported_as_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(RawFile(beside=UNKNOWN, inside=UNKNOWN, behind=UNKNOWN).bytes())
    log = LogReader(path)
    assert len(list(log)) == 6
    assert log.problems == []


def test_copy_keeps_unknown_records_of_chunks_with_equal_first_records(tmp_path: Path) -> None:
    """Channels that a chunk repeats are not read again. Failure would mean that unknown records are passed over too."""
    begin = [channel(1, "a"), record(RESERVED, b"one"), channel(2, "b"), record(FIRST_PRIVATE_OPCODE, b"two")]
    parts = [build_chunk_record(*begin, sent(1, i, 2 * i), sent(2, i, 2 * i + 1)) for i in range(3)]
    path = write_unclosed_file(tmp_path / "a.mcap", *parts)
    write_merged_log([LogReader(path, endpoints=["a"])], tmp_path / "b.mcap", "none")
    found = [one.body for one in records(tmp_path / "b.mcap") if one.opcode > raw_mcap.DATA_END]
    assert found == [b"one", b"two"] * 3


def test_copy_omits_damage_skipped_by_recovery(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(RawFile().bytes().replace(b'"n": 1', b'"n": 7', 1))
    whole = recover(path).output
    assert any(one.body.startswith(b"msgqgone") for one in records(Path(whole)))
    write_merged_log([LogReader(whole)], tmp_path / "b.mcap")
    assert all(one.opcode <= raw_mcap.DATA_END for one in records(tmp_path / "b.mcap"))

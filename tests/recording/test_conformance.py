"""Each file that MCAP's conformance suite has, read as it was written: by the project's own builders in JavaScript."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from mcap.opcode import Opcode

from msgq.recording import LogReader, examine, recover, reindex
from msgq.recording.mcap_io.record_structs import MCAP_MAGIC, RECORD_HEAD_STRUCT
from msgq.recording.merge.log_copy import write_merged_log, write_time_slices
from tests.recording.conformance import (
    DATA,
    Variant,
    read_with_javascript_library,
    read_with_python_library,
    variants,
    write_files,
)

pytestmark = [pytest.mark.ci, pytest.mark.xdist_group("conformance")]  # one process writes the files
Found = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files."""
    return write_files(tmp_path_factory.mktemp("conformance"))


def path(folder: Path, variant: Variant) -> Path:
    return folder / f"{variant.name}.mcap"


def build_written_messages(variant: Variant) -> Found:
    """Return the messages that a file has, in the order of log_time; the channel as its record says it."""
    metadata = (("foo", "bar"),)
    return [(*fields, ("a", metadata, schema)) for *fields, schema in variant.messages()]


def as_batches(logs: Iterable[LogReader]) -> Found:
    """Return all messages that logs have, in the order of log_time."""
    names = ["endpoint", "data", "log_time", "publish_time", "sequence", "channel"]
    found = []
    for log in logs:
        for batch in log.batches(names):
            rows = [tuple(row.values()) for row in batch.to_pylist()]
            found += [(*fields, log.channels[channel].channel_record) for *fields, channel in rows]
    return sorted(found, key=lambda message: message[2])


def as_messages(log: LogReader) -> Found:
    """Return the messages in the order in which iteration gives them; of channels, all that messages know."""
    known = {(channel.endpoint, channel.schema): channel.channel_record for channel in log.channels}
    found = []
    for m in log:
        known |= {(channel.endpoint, channel.schema): channel.channel_record for channel in log.channels}
        found.append((m.endpoint, m.data, m.log_time, m.publish_time, m.sequence, known[m.endpoint, m.schema]))
    return found


def in_pieces(path: Path) -> Found:
    return as_batches(pickle.loads(pickle.dumps(LogReader(path).split(1))))


def in_spans(path: Path) -> Found:
    """Return what is found when each record is looked at by itself, as a stream over a growing file does."""
    data, here, borders = path.read_bytes(), len(MCAP_MAGIC), [0]
    while here < len(data) - len(MCAP_MAGIC):
        borders.append(here)
        here += RECORD_HEAD_STRUCT.size + RECORD_HEAD_STRUCT.unpack_from(data, here)[1]
    spans = zip(borders, [*borders[1:], len(data)], strict=True)
    return as_batches(LogReader(path, span=span) for span in spans)


WAYS: dict[str, Callable[[Path], Found]] = {
    "messages": lambda path: as_messages(LogReader(path)),
    "batches": lambda path: as_batches([LogReader(path)]),
    "pieces": in_pieces,
    "spans": in_spans,
}


def test_conformance_suite_has_416_variants() -> None:
    assert len({variant.name for variant in variants()}) == 416


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", DATA)
def test_readers_return_all_messages_of_conformance_files(folder: Path, data: str, way: str) -> None:
    chosen = [variant for variant in variants() if variant.data == data]
    wrong = [variant.name for variant in chosen if WAYS[way](path(folder, variant)) != build_written_messages(variant)]
    assert chosen
    assert not wrong, (len(wrong), wrong[0], WAYS[way](folder / f"{wrong[0]}.mcap"))


def test_conformance_files_have_no_problems(folder: Path) -> None:
    for variant in variants():
        log = LogReader(path(folder, variant))
        assert log.messages == len(variant.of("Message"))
        assert log.problems == [], variant.name
        assert log.files[0].is_complete
        attached = [(one.name, one.read()) for one in log.attachments]
        assert attached == [("myFile", b"\x01\x02\x03")] * len(variant.of("Attachment"))
        assert log.problems == []
        extras = [Opcode(extra.opcode) for extra in log.files[0].extra_records]
        assert extras == [Opcode.ATTACHMENT] * len(variant.of("Attachment")) + [Opcode.METADATA] * len(
            variant.of("Metadata")
        )


def filter_file(path: Path, folder: Path) -> None:
    write_merged_log([LogReader(path)], folder / "a.mcap", "none")


def filter_later_messages(path: Path, folder: Path) -> None:
    """Copy a range of time, so that some chunks are not copied whole. All messages are in it."""
    write_merged_log([LogReader(path).between(1)], folder / "a.mcap", "none")


def split_file(path: Path, folder: Path) -> None:
    for _ in write_time_slices(LogReader(path), folder / "pieces", 5, "none"):
        pass


def recover_cut_file(path: Path, folder: Path) -> None:
    """Recover the file without its last bytes."""
    cut = folder / "a.cut"
    cut.write_bytes(path.read_bytes()[:-30])
    recover(cut, folder / "a.mcap")


COPIES: dict[str, Callable[[Path, Path], object]] = {
    "filter": filter_file,
    "filter --start": filter_later_messages,
    "split": split_file,
    "reindex": lambda path, folder: reindex(path, folder / "a.mcap"),
    "recover": recover_cut_file,
}


def copy_files(folder: Path, way: str, output: Path) -> dict[Variant, list[Path]]:
    """Copy each conformance file, and return the paths of the copies."""
    copies = {}
    for variant in variants():
        (output / variant.name).mkdir()
        COPIES[way](path(folder, variant), output / variant.name)
        copies[variant] = sorted((output / variant.name).rglob("*.mcap"))
    return copies


@pytest.mark.parametrize("way", COPIES)
def test_copies_of_conformance_files_contain_all_original_values(folder: Path, way: str, tmp_path: Path) -> None:
    for variant, copies in copy_files(folder, way, tmp_path).items():
        log = LogReader(*copies)
        assert as_batches([log]) == build_written_messages(variant), variant.name
        assert [one.read() for one in log.attachments] == [b"\x01\x02\x03"] * len(variant.of("Attachment"))
        assert log.problems == [], variant.name
        for copy in copies:
            assert [str(one) for one in examine(copy) if one.severity == "error"] == [], variant.name


@pytest.mark.parametrize("way", COPIES)
def test_other_libraries_read_copies_of_conformance_files(folder: Path, way: str, tmp_path: Path) -> None:
    copies = copy_files(folder, way, tmp_path)
    in_javascript = iter(read_with_javascript_library(path for paths in copies.values() for path in paths))
    wrong = []
    for variant, paths in copies.items():
        written = build_written_messages(variant)
        if [m for path in paths for m in read_with_python_library(path)] != written:
            wrong.append(("mcap", variant.name))
        if [m for _ in paths for m in next(in_javascript)] != written:
            wrong.append(("@mcap/core", variant.name))
    assert not wrong, (len(wrong), wrong[0])


def test_other_libraries_read_merged_conformance_files(folder: Path, tmp_path: Path) -> None:
    """Each file is merged with one whose channels have the same ids and other unknown fields."""
    other = Variant("TenMessages", frozenset({"pad"}))
    paths, wrong = [tmp_path / f"{variant.name}.mcap" for variant in variants()], []
    for variant, merged in zip(variants(), paths, strict=True):
        write_merged_log([LogReader(path(folder, variant)), LogReader(path(folder, other))], merged, "none")
    for variant, merged, in_javascript in zip(variants(), paths, read_with_javascript_library(paths), strict=True):
        both = build_written_messages(variant) + build_written_messages(other)
        written = sorted(both, key=lambda message: message[2])
        if read_with_python_library(merged) != written or in_javascript != written:
            wrong.append(variant.name)
    assert not wrong, (len(wrong), wrong[0])

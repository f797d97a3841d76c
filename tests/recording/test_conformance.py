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
from msgq.recording.merge.log_copy import write_merged_log
from tests.recording.conformance import DATA, Variant, variants, write_files

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


def copy_file(path: Path, output: Path) -> None:
    write_merged_log([LogReader(path)], output, "none")


def recover_cut_file(path: Path, output: Path) -> None:
    """Recover the file without its last bytes."""
    cut = output.with_suffix(".cut")
    cut.write_bytes(path.read_bytes()[:-30])
    recover(cut, output)


COPIES: dict[str, Callable[[Path, Path], object]] = {
    "filter": copy_file,
    "reindex": reindex,
    "recover": recover_cut_file,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_of_conformance_files_contain_all_original_values(folder: Path, way: str, tmp_path: Path) -> None:
    for variant in variants():
        output = tmp_path / f"{variant.name}.mcap"
        COPIES[way](path(folder, variant), output)
        log = LogReader(output)
        assert as_batches([log]) == build_written_messages(variant), variant.name
        assert [one.read() for one in log.attachments] == [b"\x01\x02\x03"] * len(variant.of("Attachment"))
        assert log.problems == [], variant.name
        assert [str(one) for one in examine(output) if one.severity == "error"] == [], variant.name
        output.unlink()

"""What a lake knows of files that were read: the state that was read last counts, however old the file is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.lake_directory import LakeDirectory
from msgq.recording.mcap_io.problem import Problem


@pytest.fixture
def inputs(tmp_path: Path) -> IngestLog:
    return IngestLog(LakeDirectory(f"file://{tmp_path}"))


def reasons(inputs: IngestLog) -> list[str]:
    return sorted(problem.reason for problem in inputs.list_read_errors())


@pytest.mark.parametrize(
    "second", [IngestedFile("/a", 11, 1000), IngestedFile("/a", 11, 2000), IngestedFile("/a", 10, 3000)]
)
def test_replaced_file_has_current_read_errors(inputs: IngestLog, second: IngestedFile) -> None:
    """By one with another time, or of another size."""
    first = IngestedFile("/a", 10, 2000)
    inputs.record_inputs([first], [Problem("/a", 0, "bad"), Problem("/a", 1, "bad too")])
    inputs.record_inputs([IngestedFile("/b", 1, 1)], [Problem("/b", 0, "other")])
    assert reasons(inputs) == ["bad", "bad too", "other"]
    inputs.record_inputs([second], [Problem("/a", 1, "bad too"), Problem("/a", 5, "bad now")])
    assert reasons(inputs) == ["bad now", "bad too", "other"]
    inputs.record_inputs([IngestedFile("/a", 12, 1)], [])
    assert reasons(inputs) == ["other"]
    ingested = [first, second, IngestedFile("/a", 12, 1), IngestedFile("/b", 1, 1)]
    others = [IngestedFile("/a", 13, 1), IngestedFile("/b", 1, 2), IngestedFile("/c", 1, 1)]
    assert inputs.find_ingested_files([*ingested, *others]) == set(ingested)
    assert inputs.find_ingested_files([]) == set()


def test_unreadable_file_has_read_error_until_readable(inputs: IngestLog, tmp_path: Path) -> None:
    inputs.record_inputs([IngestedFile("/a", 1, 5)], [Problem("/a", 0, "bad")])
    gone = [Problem("/a", 0, "cannot read", 13), Problem("/c", 0, "cannot read", 2)]
    inputs.record_inputs([], gone)
    assert inputs.list_read_errors() == gone
    files = sorted(tmp_path.rglob("*"))
    inputs.record_inputs([], gone)
    assert sorted(tmp_path.rglob("*")) == files, "nothing is new"
    inputs.record_inputs([IngestedFile("/a", 2, 4)], [])
    assert inputs.list_read_errors() == gone[1:]


def test_ingest_log_uses_last_entry_of_each_path(inputs: IngestLog) -> None:
    inputs.record_inputs([IngestedFile("/a", 1, 9), IngestedFile("/a", 1, 3)], [Problem("/a", 0, "of the last one")])
    assert reasons(inputs) == ["of the last one"]

"""Every kind of MCAP record, as it should be and as it should not: what the readers make of it (see kinds.py)."""

from __future__ import annotations

from pathlib import Path

from msgq.common.selection import SelectedEndpoints
from msgq.recording import LogReader
from msgq.recording.repair.recover import recover
from tests.cases import each_case
from tests.recording.logs import by_library
from tests.recording.record_cases import CASES


@each_case("name", CASES)
def test_files_with_each_record_type_give_valid_messages_and_problems(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    log = LogReader(case.write(tmp_path / "a.mcap"))
    assert sorted((m.endpoint, m.data) for m in log) == sorted(case.messages)
    if case.problem is not None:
        assert bool(log.problems) == bool(case.problem), log.problems
        assert case.problem in str([str(problem) for problem in log.problems])
    for problem in log.problems:
        assert 0 <= problem.offset <= len(case.content)


@each_case("name", CASES)
def test_files_with_each_record_type_give_equal_batches_and_pieces(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    log = LogReader(case.write(tmp_path / "a.mcap"))
    for readers in ([log], log.split(1)):
        batches = [batch for reader in readers for batch in reader.batches(["endpoint", "data"])]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert sorted((row["endpoint"], row["data"]) for row in rows) == sorted(case.messages)
    chosen = LogReader(tmp_path / "a.mcap", endpoints=SelectedEndpoints(["a"]))
    assert sorted((m.endpoint, m.data) for m in chosen) == sorted(m for m in case.messages if m[0] == "a")


@each_case("name", CASES)
def test_recovered_files_with_each_record_type_are_readable_by_mcap_library(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = case.write(tmp_path / "a.mcap")
    done = recover(path, in_place=True)
    log = LogReader(path)
    assert sorted((m.endpoint, m.data) for m in log) == sorted(case.messages)
    assert done.messages == len(case.messages)
    assert log.files[0].is_complete
    if done.changed:
        assert sorted(found[:2] for found in by_library(path)) == sorted(case.messages)

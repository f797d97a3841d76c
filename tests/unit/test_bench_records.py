"""The benchmark's table of records: blackboards beside ours, who watches does not disturb, and nothing is left."""

from pathlib import Path

import pytest

from tests.unit.test_bench import measure
from tools.bench.adapters.base import Call
from tools.bench.loops import compile_loop
from tools.bench.summary import summarize

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def test_record_bench_compares_blackboards_of_two_peers(tmp_path: Path) -> None:
    _, result = measure(tmp_path, "write_board,read_many")
    there = {"msgq", "floor", "kickmsg", "iceoryx2"} - set(result.absent)
    write, read = summarize(result)
    assert set(write.medians) == there
    assert set(read.medians) == there & {"msgq", "floor"}  # blackboards have no call for many
    assert result.failed == {}


@pytest.mark.nightly
def test_record_bench_excludes_waiting_time_of_watching_processes(tmp_path: Path) -> None:
    _, result = measure(tmp_path, "write_seqlock_5", "--peers", "kickmsg")
    (sample,) = [each for each in result.samples if each["system"] == "msgq"]
    assert max(sample["cores"]) > 1.2  # cores of the writer and of the others
    assert all(0 <= waited <= 1 for waited in sample["waited"])


@pytest.mark.nightly
def test_record_queue_bench_compares_ring_written_in_c(tmp_path: Path) -> None:
    (row,) = summarize(measure(tmp_path, "spmc")[1])
    assert set(row.medians) == {"msgq", "floor"}
    assert row.ratios["floor"] > 0


@pytest.mark.nightly
def test_record_bench_measures_read_write_and_change_cases(tmp_path: Path) -> None:
    cases = "read_board,mpmc,write_many,instant,changes_1k,seen_seqlock_5,seen_board,asleep_seqlock,asleep_board"
    cases += ",tracked,record_pair,record_open,board_open,two_same"
    _, result = measure(tmp_path, cases, "--peers", "kickmsg")
    assert len(summarize(result)) == len(cases.split(","))
    assert all("msgq" in row.medians for row in summarize(result))
    assert result.failed == {}


def test_bench_loop_can_contain_statement_instead_of_call() -> None:
    place = bytearray(4)
    compile_loop("send", b"abcd", send=Call(place, "message", "CALL[:] = ARGUMENTS"))(1)
    assert place == b"abcd"

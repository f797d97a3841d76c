"""The benchmark's tables of whole work: files, decoding and Spark."""

from pathlib import Path

import pytest

from tests.unit.test_bench import measure
from tools.bench.__main__ import main
from tools.bench.summary import summarize
from tools.bench.tables import TABLES

LIMIT_S = 600
pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def test_bench_without_words_measures_endpoints_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = {line.split(":")[0] for line in capsys.readouterr().out.splitlines()}
    for table in TABLES.values():
        assert {case.key for case in table.cases} & listed == (
            set() if table.on_request else {case.key for case in table.cases}
        )


@pytest.mark.ci
def test_bench_compares_recording_of_a_publisher_with_writing_of_libraries(tmp_path: Path) -> None:
    pytest.importorskip("mcap")
    _, result = measure(tmp_path, "record_64k_zstd,iterate,play,decode_cdr_imu", "--scale", "0.02", "--peers", "mcap")
    assert result.failed == {}
    recorded, iterated, _, decoded = summarize(result)
    assert {"msgq", "mcap"} <= set(recorded.medians)
    assert {"msgq", "mcap"} <= set(iterated.medians)
    assert "mcap" not in decoded.medians  # it does not decode
    assert all(min(row.rounds["msgq"]) > 0 for row in (recorded, iterated, decoded))
    assert all(waited == 0 for sample in result.samples for waited in sample["waited"])


@pytest.mark.nightly
@pytest.mark.watchdog(LIMIT_S)
def test_bench_measures_spark_and_follows_recorded_and_live_messages(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    result = measure(
        tmp_path, "read,memory_read_1k_python,follow_recording_5000,follow_live_5000", "--peers", "by-hand"
    )
    read, memory, recorded, live = summarize(result)
    assert {"msgq", "floor"} == set(read.medians)
    assert memory.medians["msgq"] > 1 << 20
    assert recorded.curves["msgq"]
    assert live.curves["msgq"]

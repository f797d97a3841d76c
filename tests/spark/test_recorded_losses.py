"""Losses that are no gaps: a lake counts the same ones as readers of its recordings."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.errors import RecordingError
from msgq.recording import LogReader, Recorder
from msgq.recording.merge.log_copy import write_time_slices
from msgq.recording.recorder.rolling_writer import RecordingLimits
from msgq.spark import read, tables
from msgq.spark.lake import Lake
from msgq.spark.lake.export import write_log
from tests.recording.losses import Bus, Losses, bus, count_losses, holding, record
from tests.spark.rows import sorted_rows

__all__ = ["bus", "holding"]


def fail(bus: Bus, path: Path) -> None:
    """Record into a file that reaches its limit."""
    limits = replace(RecordingLimits(), max_total_bytes=30_000)
    recorder = Recorder(path, bus.published, limits=limits, chunk_bytes=10_000, chunk_seconds=0.01, compression="none")
    while recorder.running:
        bus.send(20)
    with pytest.raises(RecordingError, match="limit"):
        recorder.stop()


def of_lake(lake: Lake) -> Losses:
    lake.build_gold()
    return dict(sorted_rows(lake.table("endpoints"), "endpoint", "lost"))


@pytest.mark.parametrize("fails", [False, True])
def test_lake_counts_losses_at_recording_ends(
    spark: Any, bus: Bus, holding: threading.Lock, tmp_path: Path, fails: bool
) -> None:
    path = tmp_path / "log.mcap"
    if fails:
        fail(bus, path)
    else:
        record(bus, path, holding)
    losses = {name: info.lost for name, info in LogReader(path).endpoints.items() if info.messages}  # rows in a lake
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([path])
    assert of_lake(lake) == losses
    checks = sorted_rows(lake.table("checks"), "endpoint", "check_name", "passed", "value")
    assert [(one, passed, value) for one, check, passed, value in checks if check == "lost"] == [
        (endpoint, not lost, lost) for endpoint, lost in sorted(losses.items())
    ]
    missing = tables.sequence_gaps(read(spark, str(path))).groupBy("endpoint").sum("lost")
    assert dict(map(tuple, missing.collect())) == {endpoint: lost for endpoint, lost in losses.items() if lost}
    write_log(lake.messages(), tmp_path / "copy.mcap", lake.uri)
    assert count_losses(tmp_path / "copy.mcap") == losses
    log: Any = LogReader(path)
    third = (log.end_time - log.start_time) // 3 + 1
    assert len(list(write_time_slices(log, tmp_path / "pieces", third))) > 1
    assert count_losses(tmp_path / "pieces") == count_losses(path)
    of_pieces = Lake(spark, tmp_path / "of_pieces")
    of_pieces.ingest([tmp_path / "pieces"])
    assert of_lake(of_pieces) == losses

"""The simulation behind docs/internals/scaling.md goes on with the code that it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.bronze.ingest_log import IngestLog
from msgq.lake.gold.increment_inputs import is_gold_current
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_filter import MessageFilter
from tests.spark.deadline import DEADLINE
from tests.support import ROOT
from tools import distant_lake, metadata_lake
from tools.metadata_lake import Recording


@pytest.mark.nightly
def test_scale_simulation_runs_without_errors(tmp_path: Path) -> None:
    picture = tmp_path / "figures.svg"
    command = [sys.executable, "-m", "tools.scale", "--hosts", "8", "--every", "7200"]
    command += ["--recordings", "10", "--picture", str(picture)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert "core hours a TB" in done.stdout
    assert "question by endpoint, CPU s" in done.stdout
    assert picture.read_text().count("<polyline") == 10
    assert not done.stderr


@pytest.mark.nightly
def test_metadata_lake_takes_recordings_and_answers_questions(tmp_path: Path) -> None:
    template, place = metadata_lake.make_template(tmp_path / "template"), tmp_path / "lake"
    metadata_lake.add_recordings(place, template, range(3))
    last = Recording(3)
    metadata_lake.ingest(place, last.list_inputs(), metadata_lake.write_recordings(place, template, [last]))
    assert not is_gold_current(LakeDirectory(place))
    metadata_lake.refresh(place)
    assert is_gold_current(LakeDirectory(place))
    reader = BronzeReader(LakeDirectory(place))
    assert len(reader.list_paths()) == 4 * 40
    of_endpoint = reader.list_paths([MessageFilter(frozenset({last.own_endpoint}))])
    of_time = reader.list_paths([MessageFilter(None, last.start_time, last.start_time + 3600 * 10**9)])
    assert sorted(of_endpoint) == sorted(of_time)
    assert len(of_time) == 40


@pytest.mark.nightly
def test_distant_lake_is_delta_table_that_takes_ingest(tmp_path: Path) -> None:
    template, place = metadata_lake.make_template(tmp_path / "template"), tmp_path / "lake"
    distant_lake.add_distant_recordings(place, template, 120)
    assert len(BronzeReader(LakeDirectory(place)).list_paths()) == 120 * 40
    new = [Recording(120), Recording(121)]
    inputs = [file for recording in new for file in recording.list_inputs()]
    metadata_lake.ingest(place, inputs, metadata_lake.write_recordings(place, template, new))
    assert len(BronzeReader(LakeDirectory(place)).list_paths()) == 122 * 40
    known = [*Recording(0).list_inputs(), *inputs]
    assert IngestLog(LakeDirectory(place)).find_ingested_files(known) == set(known)

"""A lake in an S3 server with a session: workers get the storage options, or have the environment of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto")
pytest.importorskip("pyspark")
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark.lake import Lake, follow
from tests.lake.store_lakes import StoreLake, list_messages, write_recording
from tests.object_store import SECRET, ObjectStore
from tests.spark.deadline import DEADLINE
from tests.support import ROOT


def test_lake_with_storage_options_is_written_by_workers(spark: Any, object_store: ObjectStore, tmp_path: Path) -> None:
    url, options = f"{object_store.url}/lake", object_store.options
    lake = Lake(spark, url, storage_options=options)
    for number in range(2):
        assert lake.ingest([write_recording(tmp_path / f"{number}.mcap", 10 * number)]).messages == 20
    assert lake.ingest([write_recording(tmp_path / "both.mcap", 5, 10)]).messages == 0, "workers found the duplicates"
    assert lake.build_silver() == 2
    assert lake.build_gold() == 1
    assert lake.optimize(0).files_after == 1
    assert StoreLake(url, options).read_messages() == list_messages(0, 20)
    with pytest.raises(RecordingError, match="bucket does not exist") as caught:
        Lake(spark, f"{object_store.url}-other/lake", storage_options=options).ingest([tmp_path / "0.mcap"])
    assert SECRET not in f"{caught.getrepr(style='long')} {lake!r}"


@pytest.mark.nightly
def test_ingest_and_optimize_commands_take_credentials_of_environment(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    url = f"{object_store.url}/lake"

    def run_msgq(*words: object) -> Any:
        command = [sys.executable, "-m", "msgq", "lake", *map(str, words), "--master", "local[2]", "--json"]
        environment = {**os.environ, **object_store.options}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    for number in range(2):
        recording = write_recording(tmp_path / f"{number}.mcap", 10 * number)
        assert run_msgq("ingest", url, recording)["messages"] == 20
    assert run_msgq("optimize", url, "--retain-hours", 0)["files_after"] == 1
    assert run_msgq("fleet", f"{object_store.url}/fleet", f"{object_store.url}/la*")["copied"] == 1
    assert StoreLake(url, object_store.options).read_messages() == list_messages(0, 20)
    assert LakeDirectory(f"{object_store.url}/fleet", object_store.options).has_entry("endpoints/_delta_log")


def test_stream_without_checkpoint_says_that_spark_has_no_connector(
    spark: Any, object_store: ObjectStore, tmp_path: Path
) -> None:
    lake = Lake(spark, f"{object_store.url}/lake", storage_options=object_store.options)
    with pytest.raises(InvalidValueError, match=f"'{lake.uri}'.*no connector .*--checkpoint"):
        follow(lake, str(tmp_path))


@pytest.mark.nightly
def test_stream_adds_each_message_to_lake_in_store_once(spark: Any, object_store: ObjectStore, tmp_path: Path) -> None:
    """Recordings on the disk and in the store, with the position of the stream on the disk."""
    url, options = f"{object_store.url}/lake", object_store.options
    (tmp_path / "runs").mkdir()
    for number in range(2):
        write_recording(tmp_path / f"runs/{number}.mcap", 10 * number)
        for _ in range(2):
            lake = Lake(spark, url, storage_options=options)
            query = follow(lake, str(tmp_path / "runs"), str(tmp_path / "position"), None)
            assert query.awaitTermination(DEADLINE)
            assert StoreLake(url, options).read_messages() == list_messages(0, 10 * number + 10)
    assert Lake(spark, url, storage_options=options).build_gold() == 1

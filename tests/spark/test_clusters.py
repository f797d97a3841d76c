"""The source, the stream and the lake on what is no local session: clusters of processes, and Spark Connect."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.recording import LogReader
from tests.recording import logs
from tests.spark import cluster
from tests.spark.jobs import everything, read_source_and_lake, source_of_server
from tests.support import ROOT, run_child

RUN = "ab" * 16


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Two segments, whose messages are enough for a task each, some of them large."""
    where = tmp_path / "recordings"
    where.mkdir()
    for index in range(2):
        first = 100 * index
        sent = [
            logs.message(number, first + i, 1000 * (first + i) + number, b"%d" % i * (1 + 100_000 * (number == 2)))
            for i in range(100)
            for number in (1, 2)
        ]
        logs.write_unclosed_file(
            where / f"{index:06}.mcap", logs.build_chunk_record(logs.channel(1, "a"), logs.channel(2, "big"), *sent)
        )
    return where


def read_rows(recordings: Path) -> list[list[Any]]:
    known = sorted([RUN, m.endpoint, 1, m.sequence, m.log_time, zlib.crc32(m.data)] for m in LogReader(recordings))
    assert len(known) == 400
    return known


def check(found: dict[str, Any], recordings: Path, executors: int) -> None:
    known = read_rows(recordings)
    assert found["source"] == found["stream"] == found["lake"] == known
    assert found["sql"] == [row for row in known if row[1] == "a"]
    assert found["read"] == [row for row in known if row[1] == "big"]
    assert found["ingested"] == [400, 0]
    assert sorted(found["asked"]) == [["a", 200], ["big", 200]]
    assert found["executors"] == executors


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """For a local cluster: Spark keeps the folders of executors in its home, so this one has another home."""
    home = tmp_path / "home"
    home.mkdir()
    for path in cluster.HOME.iterdir():
        (home / path.name).symlink_to(path)
    return cluster.environment(SPARK_HOME=str(home))


def test_executor_in_other_process_reads_and_ingests_all_messages(
    tmp_path: Path, recordings: Path, environment: dict[str, str]
) -> None:
    found = run_child(read_source_and_lake, "local-cluster[1,1,1024]", str(recordings), str(tmp_path), env=environment)
    assert found["source"] == found["lake"] == read_rows(recordings)
    assert (found["ingested"], found["executors"]) == (400, 1)


@pytest.mark.nightly
def test_local_cluster_reads_and_ingests_all_messages(
    tmp_path: Path, recordings: Path, environment: dict[str, str]
) -> None:
    found = run_child(everything, "local-cluster[2,1,1024]", str(recordings), str(tmp_path), env=environment)
    check(found, recordings, 2)


@pytest.mark.nightly
def test_standalone_cluster_reads_and_ingests_all_messages(tmp_path: Path, recordings: Path, standalone: str) -> None:
    found = run_child(everything, standalone, str(recordings), str(tmp_path), env=cluster.environment())
    check(found, recordings, 2)


@pytest.mark.nightly
def test_spark_connect_reads_and_ingests_all_messages(tmp_path: Path, recordings: Path) -> None:
    """The client has no Java of its own; the server finds the source where its Python has what is installed."""
    pytest.importorskip("grpc")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "pyspark_msgq.py").symlink_to(ROOT / "pyspark_msgq.py")
    with cluster.connect(tmp_path, "local[2]", PYTHONPATH=str(tmp_path / "installed")) as url:
        assert run_child(source_of_server, url, str(recordings)) == 400
        found = run_child(everything, url, str(recordings), str(tmp_path), env={"JAVA_HOME": "/nowhere"})
    check(found, recordings, 1)

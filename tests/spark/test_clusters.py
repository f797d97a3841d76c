"""The source, the stream and the lake on clusters of processes, by spark-submit, and by Spark Connect."""

from __future__ import annotations

import json
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from deltalake import DeltaTable

from msgq.lake.catalog import list_tables
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.recording import LogReader
from tests.recording import logs
from tests.spark import cluster
from tests.spark.deadline import DEADLINE
from tests.spark.jobs import build_lakes_with_faults, everything, read_source_and_lake, source_of_server
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
            where / f"{index:06}.mcap",
            logs.build_chunk_record(logs.channel(1, "a", encoding="json"), logs.channel(2, "big"), *sent),
        )
    return where


def read_rows(recordings: Path) -> list[list[Any]]:
    known = sorted([RUN, m.endpoint, 1, m.sequence, m.log_time, zlib.crc32(m.data)] for m in LogReader(recordings))
    assert len(known) == 400
    return known


def check(found: dict[str, Any], recordings: Path, out: Path, executors: int) -> None:
    known = read_rows(recordings)
    assert found["source"] == found["stream"] == found["lake"] == known
    assert found["sql"] == [row for row in known if row[1] == "a"]
    assert found["read"] == [row for row in known if row[1] == "big"]
    assert found["ingested"] == [400, 0]
    assert found["built"][1] == 1
    assert sorted(found["asked"]) == [["a", 200], ["big", 200]]
    assert found["executors"] == executors
    check_tables(out / "lake")


def check_tables(lake: Path) -> None:
    """Read a table of each layer with DuckDB and Polars."""
    polars, ducks = pytest.importorskip("polars"), pytest.importorskip("duckdb").connect()
    places = {table.name: f"{lake}/{table.path}" for table in list_tables(LakeDirectory(lake))}
    for name, columns, expected in (
        ("messages", "endpoint, sequence", [(name, number) for name in ("a", "big") for number in range(200)]),
        ("silver_a", "sequence, value", [(number, number % 100) for number in range(200)]),
        ("endpoints", "endpoint, messages, lost", [("a", 200, 0), ("big", 200, 0)]),
    ):
        rows = polars.scan_delta(places[name]).select(columns.split(", "))
        assert sorted(rows.collect().rows()) == expected, name
        ducks.register(name, DeltaTable(places[name]).to_pyarrow_dataset())
        assert ducks.sql(f"SELECT {columns} FROM {name} ORDER BY ALL").fetchall() == expected, name


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """For a local cluster: Spark keeps the folders of executors in its home, so this one has another home."""
    home = tmp_path / "home"
    home.mkdir()
    for path in cluster.HOME.iterdir():
        (home / path.name).symlink_to(path)
    return cluster.environment(SPARK_HOME=str(home))


def submit(
    function: Callable[..., Any], master: str, recordings: Path, out: Path, *more: str, env: dict[str, str]
) -> Any:
    """Return the result of a function that a program of spark-submit calls."""
    program = out / "program.py"
    program.write_text("from tests.fork_server import main\n\nmain()\n")
    call = function.__module__, function.__qualname__, json.dumps(["", str(recordings), str(out), *more])
    command = cluster.build_submit_command(master, str(program), *call)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=2 * DEADLINE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_submitted_program_ingests_all_messages_when_executor_is_killed(
    tmp_path: Path, recordings: Path, environment: dict[str, str]
) -> None:
    master = "local-cluster[1,1,1024]"
    found = submit(read_source_and_lake, master, recordings, tmp_path, "kill_executor", env=environment)
    assert (tmp_path / "job0").exists(), "an executor was killed in the first job"
    assert found["source"] == found["lake"] == read_rows(recordings)
    assert (found["ingested"], found["executors"]) == (400, 1)


def test_client_of_spark_connect_reads_and_ingests_all_messages(
    tmp_path: Path, recordings: Path, connect_url: str
) -> None:
    pytest.importorskip("grpc")
    found = run_child(read_source_and_lake, connect_url, str(recordings), str(tmp_path), env={"JAVA_HOME": "/nowhere"})
    assert found["source"] == found["lake"] == read_rows(recordings)
    assert (found["ingested"], found["executors"]) == (400, 1)


@pytest.mark.nightly
def test_local_cluster_reads_and_ingests_all_messages(
    tmp_path: Path, recordings: Path, environment: dict[str, str]
) -> None:
    found = run_child(everything, "local-cluster[2,1,1024]", str(recordings), str(tmp_path), env=environment)
    check(found, recordings, tmp_path, 2)


@pytest.mark.nightly
def test_submitted_program_on_standalone_cluster_reads_and_ingests_all_messages(
    tmp_path: Path, recordings: Path, standalone: str
) -> None:
    found = submit(everything, standalone, recordings, tmp_path, env=cluster.environment())
    check(found, recordings, tmp_path, 2)


@pytest.mark.nightly
def test_lake_has_each_message_once_when_tasks_are_repeated(tmp_path: Path, recordings: Path, standalone: str) -> None:
    """What: in each job of bronze, silver and gold an executor is killed, or Spark runs a copy of a slow task.

    Each time, two attempts of a task have written files.
    Failure would mean: messages that are lost or there twice, or a job that does not end.
    """
    faults = ("wait_for_copy", "kill_executor")  # after a kill, Spark repeats tasks instead of copying them
    run_child(build_lakes_with_faults, standalone, str(recordings), str(tmp_path), *faults, env=cluster.environment())
    for fault in faults:
        lake = LakeDirectory(tmp_path / fault / "lake")
        assert len(list((tmp_path / fault).glob("job*"))) == 4, f"{fault} in bronze, silver, and both jobs of gold"
        check_tables(tmp_path / fault / "lake")
        committed = LakeTable(lake, "messages").read_snapshot()
        assert committed is not None
        written = list((tmp_path / fault / "lake" / "messages").glob("date=*/*/*.parquet"))
        assert len(written) > len(committed.files_by_path)


@pytest.mark.nightly
def test_spark_connect_reads_and_ingests_all_messages(tmp_path: Path, recordings: Path) -> None:
    """The client has no Java of its own; the server finds the source where its Python has what is installed."""
    pytest.importorskip("grpc")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "pyspark_msgq.py").symlink_to(ROOT / "pyspark_msgq.py")
    with cluster.connect(tmp_path, "local[2]", PYTHONPATH=str(tmp_path / "installed")) as url:
        assert run_child(source_of_server, url, str(recordings)) == 400
        found = run_child(everything, url, str(recordings), str(tmp_path), env={"JAVA_HOME": "/nowhere"})
    check(found, recordings, tmp_path, 1)

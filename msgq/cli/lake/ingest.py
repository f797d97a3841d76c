"""`msgq lake ingest`: adds recordings to a lake."""

from dataclasses import asdict

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun
from msgq.decoding.schemas import Schemas


@click.command(epilog=options.EXIT_CODES)
@arguments.lake_argument
@click.argument("recordings", nargs=-1, required=True)
@click.option(
    "--silver/--no-silver", default=True, show_default=True, help="Decode new messages into one table for each schema."
)
@click.option("--gold/--no-gold", default=True, show_default=True, help="Update the gold tables from new messages.")
@click.option(
    "--new",
    "new_only",
    is_flag=True,
    help="In a directory, continue where the last ingest with --new ended. Names must sort by time.",
)
@options.add_schema_options
@arguments.master_option
@options.json_option
def command(
    lake: str,
    recordings: tuple[str, ...],
    silver: bool,
    gold: bool,
    new_only: bool,
    schemas: Schemas | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Add recordings to a lake.

    RECORDINGS are files, directories or patterns. The lake stores each message once. The command skips unchanged
    files, and messages that the lake already has from another file.
    """
    opened = arguments.open_lake(lake, master, recordings)
    with arguments.show_task_progress(opened.spark, "ingest"):
        done = opened.ingest(recordings, schemas, new_only)
    if silver:
        with arguments.show_task_progress(opened.spark, "decode"):
            opened.build_silver()
    with arguments.show_task_progress(opened.spark, "tables"):
        runs = opened.build_gold() if gold else 0
    if as_json:
        echo_json(asdict(done) | {"runs": runs})
    else:
        text = f"{format_count_noun(done.messages, 'new message')} from {format_count_noun(done.files, 'new file')}"
        errors = format_count_noun(len(done.read_errors), "read error")
        echo(
            f"{lake}: {text}, {format_count_noun(done.skipped, 'known file')} skipped, {errors}; version {done.version}"
        )
    for problem in done.read_errors:
        echo(f"skipped: {problem}", err=True)
    if not done.files + done.skipped:
        raise click.ClickException(f"no recordings found in {', '.join(recordings)}")

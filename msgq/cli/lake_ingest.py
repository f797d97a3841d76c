"""`msgq lake ingest`: recordings into a lake."""

from dataclasses import asdict

import click

from msgq.cli import lake_options, options
from msgq.cli.render import echo, echo_json, in_units


@click.command(short_help="Add recordings to a lake.", epilog=options.EXIT_CODES)
@lake_options.lake
@click.argument("recordings", nargs=-1, required=True)
@click.option("--silver/--no-silver", default=True, show_default=True, help="Decode what is new, a table an endpoint.")
@click.option("--gold/--no-gold", default=True, show_default=True, help="Make the tables of gold of what is new.")
@lake_options.on_spark
@options.as_json
def command(
    lake: str, recordings: tuple[str, ...], silver: bool, gold: bool, master: str | None, table_format: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Add RECORDINGS (files, directories, patterns) to LAKE.

    What was ingested before is not there twice: files that did not change are skipped, and messages that are in the
    lake are left out, whichever file they are in.
    """
    found = lake_options.open_lake(lake, master, table_format, may_be_new=True)
    with lake_options.progress(found, "ingest"):
        done = found.ingest(recordings)
    if silver:
        with lake_options.progress(found, "decode"):
            found.decode()
    with lake_options.progress(found, "tables"):
        runs = found.refresh() if gold else 0
    if as_json:
        echo_json(asdict(done) | {"runs": runs})
    else:
        text = f"{in_units(done.messages)} new messages of {done.files} files"
        echo(f"{lake}: {text}, {done.skipped} files skipped as they were ingested before")
    for problem in done.problems:
        echo(f"skipped: {problem}", err=True)

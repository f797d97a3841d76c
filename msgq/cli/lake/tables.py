"""`msgq lake tables`: what a lake has."""

import re
from dataclasses import asdict

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.render import console, echo_json, in_bytes, in_units
from msgq.cli.lake import arguments


@click.command(short_help="Say which tables a lake has.", epilog=options.EXIT_CODES)
@arguments.lake
@options.as_json
def command(lake: str, as_json: bool) -> None:
    """Say which tables LAKE has, how large each is, and what a row of it is.

    The names are those for `msgq lake sql`, in backticks where SQL wants them. A table of silver may have several
    endpoints of one schema, each of which is silver_NAME. Tables without a name serve the lake itself. No Spark starts.
    """
    from msgq.lake.catalog import catalogue, quoted

    tables = catalogue(arguments.existing(lake))
    if as_json:
        for entry in tables:
            echo_json(asdict(entry))
        return
    table = Table("table", "a row is", "where")
    for title in ("rows", "files", "size"):
        table.add_column(title, justify="right")
    for entry in tables:
        name = entry.table if re.fullmatch(r"\w*", entry.table) else quoted(entry.table)
        sizes = (in_units(entry.rows), in_units(entry.files), in_bytes(entry.bytes))
        table.add_row(name, entry.row, entry.place, *sizes)
    console().print(table)

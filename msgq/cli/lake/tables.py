"""`msgq lake tables`: lists the tables of a lake."""

import re
from dataclasses import asdict

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.console import get_console
from msgq.cli.common.render import echo_json
from msgq.cli.lake import arguments
from msgq.common.formatting import format_bytes, format_count


@click.command(epilog=options.EXIT_CODES)
@arguments.lake_argument
@options.json_option
def command(lake: str, as_json: bool) -> None:
    """List the tables of a lake with their sizes.

    `msgq lake sql` accepts the listed names. If SQL needs backticks, the name is listed in backticks. A silver table
    can have several endpoints with the same schema. The view silver_NAME has a single endpoint. Tables without a name
    are internal. The command does not start Spark.
    """
    from msgq.lake.catalog import list_tables, quote_sql_name

    tables = list_tables(arguments.open_lake_directory(lake))
    if as_json:
        for info in tables:
            echo_json(asdict(info))
        return
    table = Table("table", "a row is", "where")
    for title in ("rows", "files", "size"):
        table.add_column(title, justify="right")
    for info in tables:
        name = info.name if re.fullmatch(r"\w*", info.name) else quote_sql_name(info.name)
        sizes = (format_count(info.row_count), format_count(info.file_count), format_bytes(info.size_bytes))
        table.add_row(name, info.description, info.path, *sizes)
    get_console().print(table)

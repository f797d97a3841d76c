"""`msgq lake sql`: runs a query on a lake."""

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, get_console
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun


@click.command(epilog=options.EXIT_CODES)
@arguments.lake_argument
@arguments.query_argument
@click.option(
    "-n",
    "--rows",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="COUNT",
    help="Largest number of rows to print.",
)
@arguments.version_option
@arguments.master_option
@options.json_option
def command(lake: str, query: str, rows: int, version: int | None, master: str | None, as_json: bool) -> None:
    """Query the tables of a lake in SQL.

    To list the tables, run `msgq lake tables LAKE`. The view silver_NAME contains the decoded messages of the
    endpoint NAME. If NAME has a character that is not a letter, a digit or _, write the name of the view in
    backticks.
    """
    opened = arguments.open_lake(lake, master, version=version)
    answer = opened.sql(query)
    with arguments.show_task_progress(opened, "sql"):
        lines = [row.asDict(recursive=True) for row in answer.limit(rows + 1).collect()]
    shown = lines[:rows]
    if as_json:
        for line in shown:
            echo_json(line)
    else:
        table = Table(*answer.columns)
        for line in shown:
            table.add_row(*map(_format_value, line.values()))
        get_console().print(table)
    if len(lines) > rows:
        echo(f"result has more than {format_count_noun(rows, 'row')}; to print more, give --rows", err=True)


def _format_value(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return format_count_noun(len(value), "byte")
    return "-" if value is None else str(value)

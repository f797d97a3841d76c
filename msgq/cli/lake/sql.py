"""`msgq lake sql`: a question to a lake."""

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, get_console
from msgq.cli.lake import arguments


@click.command(short_help="Query a lake in SQL.", epilog=options.EXIT_CODES)
@arguments.lake_argument
@arguments.query_argument
@click.option(
    "-n", "--rows", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many rows."
)
@arguments.version_option
@arguments.master_option
@options.json_option
def command(lake: str, query: str, rows: int, version: int | None, master: str | None, as_json: bool) -> None:
    """Query the tables of LAKE in SQL: messages, read_errors, endpoints, sequence_gaps, throughput,
    latency, checks, ...

    The decoded messages of an endpoint are silver_NAME; in backticks, where NAME is more than letters, digits and _.
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
        echo(f"more rows exist; use --rows to show more than {rows}", err=True)


def _format_value(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return "-" if value is None else str(value)

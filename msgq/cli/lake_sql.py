"""`msgq lake sql`: a question to a lake."""

import click
from rich.table import Table

from msgq.cli import lake_options, options
from msgq.cli.render import console, echo, echo_json


@click.command(short_help="Ask a lake a question in SQL.", epilog=options.EXIT_CODES)
@lake_options.lake
@lake_options.query
@click.option("-n", "--rows", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most so many.")
@lake_options.on_spark
@options.as_json
def command(lake: str, query: str, rows: int, master: str | None, table_format: str, as_json: bool) -> None:
    """Ask LAKE a question in SQL, about its tables: messages, problems, endpoints, gaps, rates, latency, checks, ...

    The decoded messages of an endpoint are silver_NAME; in backticks, where NAME is more than letters, digits and _.
    """
    found = lake_options.open_lake(lake, master, table_format)
    answer = found.ask(query)
    with lake_options.progress(found, "sql"):
        lines = [row.asDict(recursive=True) for row in answer.limit(rows + 1).collect()]
    shown = lines[:rows]
    if as_json:
        for line in shown:
            echo_json({name: bytes(value) if isinstance(value, bytearray) else value for name, value in line.items()})
    else:
        table = Table(*answer.columns)
        for line in shown:
            table.add_row(*map(_text, line.values()))
        console().print(table)
    if len(lines) > rows:
        echo(f"there is more; --rows shows more than {rows}", err=True)


def _text(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return "-" if value is None else str(value)

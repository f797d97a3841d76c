"""`msgq lake sql`: runs a query on a lake."""

from typing import Any

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.console import get_console
from msgq.cli.common.progress import TASKS, ProgressLine
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments
from msgq.common.optional import require_extra
from msgq.common.texts import format_count_noun

_QueryResult = tuple[list[str], list[dict[str, Any]]]


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
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="Program that runs the query. DuckDB starts without Java.",
)
@arguments.version_option
@arguments.master_option
@options.json_option
def command(
    lake: str, query: str, rows: int, engine: str, version: int | None, master: str | None, as_json: bool
) -> None:
    """Query the tables of a lake in SQL.

    To list the tables, run `msgq lake tables LAKE`. The view silver_NAME contains the decoded messages of the
    endpoint NAME. If NAME has a character that is not a letter, a digit or _, write the name of the view in
    backticks. With --engine duckdb, write the name in double quotes.
    """
    if query.lower().split()[:2] == ["show", "tables"]:
        raise click.UsageError("SHOW TABLES would list only tables that the query names; run `msgq lake tables LAKE`")
    if engine == "spark":
        columns, lines = _query_spark(lake, query, rows + 1, version, master)
    elif master is not None:
        raise click.UsageError("--master needs --engine spark")
    else:
        columns, lines = _query_duckdb(lake, query, rows + 1, version)
    shown = lines[:rows]
    if as_json:
        for line in shown:
            echo_json(line)
    else:
        table = Table(*columns)
        for line in shown:
            table.add_row(*map(_format_value, line.values()))
        get_console().print(table)
    if len(lines) > rows:
        echo(f"result has more than {format_count_noun(rows, 'row')}; to print more, give --rows", err=True)


def _query_spark(lake: str, query: str, limit: int, version: int | None, master: str | None) -> _QueryResult:
    opened = arguments.open_lake(lake, master, version=version)
    answer = opened.sql(query)
    with arguments.show_task_progress(opened.spark, "sql"):
        return answer.columns, [row.asDict(recursive=True) for row in answer.limit(limit).collect()]


def _query_duckdb(lake: str, query: str, limit: int, version: int | None) -> _QueryResult:
    require_extra("msgq lake sql --engine duckdb", "duckdb", "pyarrow", "deltalake", "duckdb")
    from msgq.lake.duckdb_engine import run_query

    with ProgressLine("sql", TASKS):
        columns, rows = run_query(arguments.open_lake_directory(lake), query, limit, version)
    return columns, [dict(zip(columns, row, strict=True)) for row in rows]


def _format_value(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return format_count_noun(len(value), "byte")
    return "-" if value is None else str(value)

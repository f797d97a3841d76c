"""`msgq lake export`: writes messages or the result of a query to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments, selection
from msgq.common.texts import format_count_noun

if TYPE_CHECKING:
    from msgq.spark.lake import Lake

_EXPORT_FORMATS = ("mcap", "parquet", "csv", "json")
_FORMAT_OPTIONS = {
    "csv": {"header": "true"},
    # Options of Java's writer. With 128 MiB and a check each 100 rows, two tasks with pictures need more than 1 GiB.
    "parquet": {"parquet.block.size": str(32 << 20), "parquet.page.size.row.check.min": "4"},
}


@click.command(short_help="Write messages or the result of a query to a file.", epilog=options.EXIT_CODES)
@arguments.lake_argument
@selection.optional_query_argument
@options.required_output_option("PATH", "File or directory to write. The path must not exist.")
@selection.add_selection_options
@click.option(
    "--to",
    type=click.Choice(_EXPORT_FORMATS),
    help="Output format.  [default: extension of --output, else parquet; without SQL: mcap]",
)
@arguments.version_option
@arguments.master_option
@options.json_option
def command(
    lake: str,
    query: str | None,
    output: Path,
    to: str | None,
    version: int | None,
    master: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Write messages or the result of a query to a file.

    Without SQL, the output is an MCAP file with the selected messages. The command then does not start Spark. If
    --start or --end is a number, the number counts the seconds after the first message of the lake.

    With SQL, the output is an MCAP file of messages, or a directory of Parquet, CSV or JSON files. For MCAP, the query
    must return the columns endpoint, log_time and data, as in SELECT * FROM messages. The columns epoch, sequence,
    publish_time, origin_time, encoding, schema, schema_id, kind, publisher, key and options are optional.
    """
    selection.require_one_selection(query, chosen)
    kind = to or (output.suffix[1:] if output.suffix[1:] in _EXPORT_FORMATS else "mcap" if query is None else "parquet")
    if output.exists():
        raise click.UsageError(f"{output} exists; give another name, or remove it")
    if kind == "mcap":
        count, noun = selection.write_log(lake, query, chosen, output, version, master), "message"
    elif query is None:
        raise click.UsageError(f"the format {kind} needs SQL: SELECT * FROM messages WHERE ...")
    else:
        count, noun = _write_tables(arguments.open_lake(lake, master, version=version), query, output, kind), "row"
    if as_json:
        echo_json({"path": str(output), "rows": count})
    else:
        echo(f"{output}: {format_count_noun(count, noun)}")


def _write_tables(opened: Lake, query: str, output: Path, kind: str) -> int:
    """Write the result of a query as a directory of files, and return the number of rows."""
    answer, chosen = opened.sql(query), _FORMAT_OPTIONS.get(kind, {})
    with arguments.show_task_progress(opened.spark, "export"):
        answer.write.format(kind).options(**chosen).save(f"file://{output.absolute()}")
        return opened.spark.read.format(kind).schema(answer.schema).options(**chosen).load(str(output)).count()

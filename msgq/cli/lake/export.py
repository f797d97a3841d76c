"""`msgq lake export`: writes the result of a query to a file."""

from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun

_EXPORT_FORMATS = ("mcap", "parquet", "csv", "json")
_FORMAT_OPTIONS = {
    "csv": {"header": "true"},
    # Of Java's writer: with 128 MiB, looked at each 100 rows, two tasks with pictures take more than 1 GiB.
    "parquet": {"parquet.block.size": str(32 << 20), "parquet.page.size.row.check.min": "4"},
}


@click.command(short_help="Write the result of a query to a file.", epilog=options.EXIT_CODES)
@arguments.lake_argument
@arguments.query_argument
@options.required_output_option("PATH", "File or directory to write. The path must not exist.")
@click.option(
    "--to", type=click.Choice(_EXPORT_FORMATS), help="Output format.  [default: extension of --output, else parquet]"
)
@arguments.version_option
@arguments.master_option
@options.json_option
def command(
    lake: str, query: str, output: Path, to: str | None, version: int | None, master: str | None, as_json: bool
) -> None:
    """Write the result of a query to a file.

    The output is an MCAP file of messages, or a directory of Parquet, CSV or JSON files. For MCAP, the query must
    return the columns endpoint, log_time and data, as in SELECT * FROM messages. The columns epoch, sequence,
    publish_time, origin_time, encoding, schema, schema_id, kind, publisher, key and options are optional.
    """
    from msgq.spark.lake.export import write_log

    kind = to or (output.suffix[1:] if output.suffix[1:] in _EXPORT_FORMATS else "parquet")
    if output.exists():
        raise click.UsageError(f"{output} exists; give another name, or remove it")
    opened = arguments.open_lake(lake, master, version=version)
    answer = opened.sql(query)
    with arguments.show_task_progress(opened, "export"):
        if kind == "mcap":
            count = write_log(answer, output, opened.uri)
        else:
            chosen = _FORMAT_OPTIONS.get(kind, {})
            answer.write.format(kind).options(**chosen).save(f"file://{output.absolute()}")
            count = opened.spark.read.format(kind).schema(answer.schema).options(**chosen).load(str(output)).count()
    if as_json:
        echo_json({"path": str(output), "rows": count})
    else:
        echo(f"{output}: {format_count_noun(count, 'row')}")

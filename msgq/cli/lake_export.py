"""`msgq lake export`: the answer to a question as a file."""

from pathlib import Path

import click

from msgq.cli import lake_options, options
from msgq.cli.render import echo, echo_json, in_units

_KINDS = ("mcap", "parquet", "csv", "json")


@click.command(short_help="Write the answer to a query as a file.", epilog=options.EXIT_CODES)
@lake_options.lake
@lake_options.query
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="What to write; not there yet.")
@click.option("--to", type=click.Choice(_KINDS), help="What it shall be.  [default: by the name's end, else parquet]")
@lake_options.on_spark
@options.as_json
def command(
    lake: str, query: str, output: Path, to: str | None, master: str | None, table_format: str, as_json: bool
) -> None:
    """Write the answer to a query: an MCAP file of messages, or a directory of Parquet, CSV or JSON files.

    For MCAP the query must give endpoint, log_time and data; epoch, sequence, publish_time and encoding are kept where
    it gives them: SELECT * FROM messages WHERE ...
    """
    from msgq.spark.export import write_log

    kind = to or (output.suffix[1:] if output.suffix[1:] in _KINDS else "parquet")
    if output.exists():
        raise click.UsageError(f"{output} exists; give another name, or remove it")
    found = lake_options.open_lake(lake, master, table_format)
    answer = found.ask(query)
    with lake_options.progress(found, "export"):
        if kind == "mcap":
            count = write_log(answer, output)
        else:
            header = {"header": "true"} if kind == "csv" else {}
            answer.write.format(kind).options(**header).save(f"file://{output.absolute()}")
            count = found.spark.read.format(kind).schema(answer.schema).options(**header).load(str(output)).count()
    if as_json:
        echo_json({"path": str(output), "rows": count})
    else:
        echo(f"{output}: {in_units(count)} rows")

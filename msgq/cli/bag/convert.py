"""`msgq bag convert`: a log as Parquet, JSON lines or CSV."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import require_no_terminal
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import create_atomically

_TABLE_FORMATS = ("parquet", "jsonl", "csv")
_STDOUT_PATH = Path("-")


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="What to write, which must not exist; - is the standard output, for text.",
)
@click.option(
    "--to", "kind", type=click.Choice(_TABLE_FORMATS), help="The format.  [default: by the name of the output]"
)
@arguments.add_selection_options
@arguments.clock_option
@options.add_schema_options
@options.json_option
def command(logs: tuple[Path, ...], output: Path, kind: str | None, as_json: bool, **chosen: Any) -> None:
    """Write LOGS, which are one log together, as tables, decoded by the schemas of their endpoints.

    Parquet has a column for each field: a directory of files, one an endpoint, or one file if the output's name ends in
    .parquet, of one endpoint. JSON lines and CSV are one file, with payloads in base64 where nobody says what they are.
    """
    kind = kind or output.suffix.removeprefix(".")
    if kind not in _TABLE_FORMATS:
        raise click.UsageError(f"{output} does not tell the format; give --to {'|'.join(_TABLE_FORMATS)}")
    log = arguments.open_log(logs, **chosen)
    count = _write_tables(log, output, kind)
    arguments.print_log_problems(log)
    if output != _STDOUT_PATH:
        arguments.print_written_log(output, count, as_json)
    arguments.require_endpoints_found(log, **chosen)


def _write_tables(log: LogReader, output: Path, kind: str) -> int:
    from msgq.recording.export import text_export

    if kind == "parquet":
        if output == _STDOUT_PATH:
            raise click.UsageError("Parquet needs a file; give another output, or --to jsonl")
        return log.to_parquet(output)
    if output == _STDOUT_PATH:
        return text_export.EXPORT_WRITERS[kind](log.decoded(), require_no_terminal("the texts of others"))
    with create_atomically(output) as unfinished, unfinished.open("w", newline="") as file:
        return text_export.EXPORT_WRITERS[kind](log.decoded(), file)

"""`msgq bag convert`: converts a log to Parquet, JSON lines or CSV."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import require_no_terminal
from msgq.common.storage.url_path import RecordingPath
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import create_atomically

_TABLE_FORMATS = ("parquet", "jsonl", "csv")
_STDOUT_PATH = Path("-")


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@options.required_output_option(
    "PATH", "File or directory to write. The path must not exist. For text formats, - is the standard output."
)
@click.option(
    "--to", "kind", type=click.Choice(_TABLE_FORMATS), help="Output format.  [default: extension of --output]"
)
@arguments.add_selection_options
@arguments.clock_option
@options.add_schema_options
@arguments.chunk_limit_option
@options.json_option
def command(logs: tuple[RecordingPath, ...], output: Path, kind: str | None, as_json: bool, **chosen: Any) -> None:
    """Convert recordings to Parquet, JSON lines or CSV.

    The schemas of the endpoints decode the messages. Payloads without a schema are written in base64. JSON lines and
    CSV output is a single file.

    Parquet output is a directory with one file for each endpoint, and one column for each field. If the name of the
    output ends in .parquet, the output is one file for one endpoint.
    """
    kind = kind or output.suffix.removeprefix(".")
    if kind not in _TABLE_FORMATS:
        raise click.UsageError(
            f"--output {str(output)!r} has no extension of a known format; give --to {'|'.join(_TABLE_FORMATS)}"
        )
    log = arguments.open_log(logs, **chosen)
    with arguments.show_read_progress(log):
        count = _write_tables(log, output, kind)
    arguments.print_log_problems(log)
    if output != _STDOUT_PATH:
        arguments.print_written_log(output, count, as_json)
    arguments.require_endpoints_found(log, **chosen)


def _write_tables(log: LogReader, output: Path, kind: str) -> int:
    from msgq.recording.export import text_export

    if kind == "parquet":
        if output == _STDOUT_PATH:
            raise click.UsageError(
                "--output -: Parquet cannot be written to the standard output; give a file, or --to jsonl"
            )
        return log.to_parquet(output)
    if output == _STDOUT_PATH:
        return text_export.EXPORT_WRITERS[kind](log.decoded(), require_no_terminal("decoded messages"))
    with create_atomically(output) as unfinished, unfinished.open("w", newline="") as file:
        return text_export.EXPORT_WRITERS[kind](log.decoded(), file)

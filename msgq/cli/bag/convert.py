"""`msgq bag convert`: a log as Parquet, JSON lines or CSV."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options

_FORMATS = ("parquet", "jsonl", "csv")


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@arguments.output
@click.option("--to", "kind", type=click.Choice(_FORMATS), help="The format.  [default: by the name of the output]")
@arguments.selection
@options.as_json
def command(logs: tuple[Path, ...], output: Path, kind: str | None, as_json: bool, **chosen: Any) -> None:
    """Write LOGS, which are one log together, as a table.

    Parquet has the payloads as they are; JSON lines and CSV have them decoded by the schema of their endpoint, or in
    base64 where there is none.
    """
    from msgq.recording.reader.copying import WRITERS

    kind = kind or output.suffix.removeprefix(".")
    if kind not in _FORMATS:
        raise click.UsageError(f"{output} does not tell the format; give --to {'|'.join(_FORMATS)}")
    log = arguments.open_log(logs, **chosen)
    count = WRITERS[kind](log, output)
    arguments.tell_problems(log)
    arguments.tell_written(output, count, as_json)

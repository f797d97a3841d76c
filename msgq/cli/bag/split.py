"""`msgq bag split`: splits a log into pieces of equal duration."""

from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.common.storage.url_path import RecordingPath
from msgq.common.units import NS_PER_S


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@options.required_output_option("DIRECTORY", "New directory for the pieces.")
@click.option(
    "--split-seconds",
    required=True,
    metavar="SECONDS",
    type=options.NumberRange(0.001, 1e9),
    help="Duration of each piece, in seconds.",
)
@arguments.compression_option
@arguments.chunk_limit_option
@options.json_option
def command(
    logs: tuple[RecordingPath, ...],
    output: Path,
    split_seconds: float,
    compression: str | None,
    max_chunk_bytes: int,
    as_json: bool,
) -> None:
    """Split recordings into pieces of equal duration.

    The pieces are segments in a new directory. All commands can read this directory as one log. To copy a single
    range of time, use `msgq bag filter`.
    """
    from msgq.recording.merge.log_copy import write_time_slices

    log = arguments.open_log(logs, max_chunk_bytes=max_chunk_bytes)
    with arguments.show_read_progress(log) as line:
        for path, count in write_time_slices(log, output, round(split_seconds * NS_PER_S), compression):
            line.hide()
            arguments.print_written_log(path, count, as_json)
    arguments.print_log_problems(log)

"""`msgq bag merge`: merges several logs into one file."""

from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.common.storage.url_path import RecordingPath


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@arguments.output_option
@arguments.compression_option
@arguments.chunk_limit_option
@options.json_option
def command(
    logs: tuple[RecordingPath, ...], output: Path, compression: str | None, max_chunk_bytes: int, as_json: bool
) -> None:
    """Merge recordings into one file, in the order of log time.

    The command renumbers epochs. In the merged file, a gap in the sequence numbers of an endpoint still means a loss.
    """
    from msgq.recording.merge.log_copy import write_merged_log

    opened = [arguments.open_log([path], max_chunk_bytes=max_chunk_bytes) for path in logs]
    with arguments.show_read_progress(*opened):
        count = write_merged_log(opened, output, compression)
    for log in opened:
        arguments.print_log_problems(log)
    arguments.print_written_log(output, count, as_json)

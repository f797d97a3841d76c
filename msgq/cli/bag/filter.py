"""`msgq bag filter`: copies selected endpoints and times of a log into another file."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.common.storage.url_path import RecordingPath


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@arguments.output_option
@arguments.add_selection_options
@arguments.compression_option
@arguments.chunk_limit_option
@options.json_option
def command(
    logs: tuple[RecordingPath, ...], output: Path, compression: str | None, as_json: bool, **chosen: Any
) -> None:
    """Copy selected messages of recordings into a new file.

    \b
    Example: keep the first ten seconds of two endpoints
      msgq bag filter drive --endpoint imu --endpoint gps --end 10 -o part.mcap
    """
    from msgq.recording.merge.log_copy import write_merged_log

    log = arguments.open_log(logs, **chosen)
    with arguments.show_read_progress(log):
        count = write_merged_log([log], output, compression)
    arguments.print_log_problems(log)
    arguments.print_written_log(output, count, as_json)
    arguments.require_endpoints_found(log, **chosen)

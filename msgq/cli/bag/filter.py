"""`msgq bag filter`: some endpoints, some time of a log into another file."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@arguments.output
@arguments.compression
@arguments.selection
@options.as_json
def command(logs: tuple[Path, ...], output: Path, compression: str | None, as_json: bool, **chosen: Any) -> None:
    """Write some of the messages of LOGS, which are one log together, into another file."""
    from msgq.recording.merge.log_copy import write_mcap

    log = arguments.open_log(logs, **chosen)
    with arguments.showing_progress(log):
        count = write_mcap([log], output, compression)
    arguments.tell_problems(log)
    arguments.tell_written(output, count, as_json)
    arguments.require_found(log, **chosen)

"""`msgq bag filter`: some endpoints, some time of a log into another file."""

from pathlib import Path
from typing import Any

import click

from msgq.cli import bag_options, options


@click.command(epilog=options.EXIT_CODES)
@bag_options.logs
@bag_options.output
@bag_options.compression
@bag_options.selection
@options.as_json
def command(logs: tuple[Path, ...], output: Path, compression: str, as_json: bool, **chosen: Any) -> None:
    """Write some of the messages of LOGS, which are one log together, into another file."""
    from msgq.recording.copying import write_mcap

    log = bag_options.open_log(logs, **chosen)
    count = write_mcap([log], output, compression)
    bag_options.tell_problems(log)
    bag_options.tell_written(output, count, as_json)

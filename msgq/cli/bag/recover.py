"""`msgq bag recover`: makes truncated and damaged files whole."""

from pathlib import Path

import click

from msgq.cli.bag import arguments, repair_options
from msgq.cli.common import options
from msgq.recording.mcap_io import recording_files
from msgq.recording.repair.recover import recover


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@repair_options.add_repair_options
@arguments.chunk_limit_option
@options.json_option
def command(logs: tuple[Path, ...], output: Path | None, in_place: bool, max_chunk_bytes: int, as_json: bool) -> None:
    """Make LOGS whole, so that every MCAP reader takes them; whole files stay as they are.

    Each file becomes a new one, NAME.recovered.mcap beside it, a directory a new directory, with at least the messages
    that `msgq` finds in the old one. What is no whole record at the end is cut off, damage within is marked so that
    readers pass over it, what is wrong or missing of indexes and summary is written anew; what was done is said. A file
    with a chunk above --max-chunk-bytes is left alone: it may be a good one.
    """
    repair_options.repair_logs(
        logs, recover, recording_files.RECOVERED_LABEL, output, in_place, max_chunk_bytes, as_json
    )

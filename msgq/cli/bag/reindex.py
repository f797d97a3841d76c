"""`msgq bag reindex`: all indexes and the summary of a file anew."""

from pathlib import Path

import click

from msgq.cli.bag import arguments, repair_options
from msgq.cli.common import options
from msgq.recording.mcap_io import recording_files
from msgq.recording.repair.recover import reindex


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@repair_options.options
@arguments.max_chunk_bytes
@options.as_json
def command(logs: tuple[Path, ...], output: Path | None, in_place: bool, max_chunk_bytes: int, as_json: bool) -> None:
    """Write all indexes and the summary of LOGS anew, whatever they were.

    It is `msgq bag recover` for files that are whole as well, such as those that were written without an index. The new
    file is NAME.reindexed.mcap.
    """
    repair_options.repair(logs, reindex, recording_files.REINDEXED, output, in_place, max_chunk_bytes, as_json)

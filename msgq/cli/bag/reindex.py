"""`msgq bag reindex`: writes all indexes and the summary of a file again."""

from pathlib import Path

import click

from msgq.cli.bag import arguments, repair_options
from msgq.cli.common import options
from msgq.common.storage.url_path import RecordingPath


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@repair_options.add_repair_options
@arguments.chunk_limit_option
@options.json_option
def command(
    logs: tuple[RecordingPath, ...], output: Path | None, in_place: bool, max_chunk_bytes: int, as_json: bool
) -> None:
    """Rebuild all indexes and the summary of recordings.

    The command works like `msgq bag recover`, but also rewrites intact files, for example files without an index.
    Each new file is NAME.reindexed.mcap, next to the old file.
    """
    repair_options.repair_logs(logs, output, in_place, max_chunk_bytes, as_json, rewrites_indexes=True)

"""`msgq bag recover`: repairs truncated and damaged files."""

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
    """Repair recordings, so that every MCAP reader can read them.

    For each damaged file, the command writes a repaired copy, NAME.recovered.mcap, next to the old file. For a
    directory, the command writes a new directory. The command cuts off an incomplete last record, and rebuilds
    indexes and the summary. The command marks damaged data, so that readers skip the data. Each change is printed.
    The copy contains all messages that msgq finds in the old file. Intact files stay unchanged.
    """
    repair_options.repair_logs(logs, output, in_place, max_chunk_bytes, as_json, rewrites_indexes=False)

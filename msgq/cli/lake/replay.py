"""`msgq lake replay`: plays messages of a lake on the bus, or into programs in virtual time."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from msgq.cli.common import options, playing
from msgq.cli.common.deterministic import play_deterministic
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import end_on_interrupt
from msgq.cli.lake import arguments, selection
from msgq.common.texts import format_count_noun
from msgq.recording.player.remapping import NameMapping


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@arguments.lake_argument
@selection.optional_query_argument
@selection.add_selection_options
@playing.rate_option
@click.option("--wait-for-readers", is_flag=True, help="Before playing, wait for a subscriber on each endpoint.")
@playing.backend_option
@playing.programs_option
@playing.remap_option
@playing.add_ending_options
@playing.seed_option
@options.prefix_option
@arguments.version_option
@arguments.master_option
@options.json_option
def command(
    lake: str,
    query: str | None,
    rate: float,
    wait_for_readers: bool,
    backend: str | None,
    programs: Sequence[str],
    remap: NameMapping,
    idle_timeout: float,
    max_runtime: float,
    seed: int,
    prefix: str | None,
    version: int | None,
    master: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Play selected messages, or the messages that a query returns.

    Without SQL, the command plays the selected messages, and does not start Spark. If --start or --end is a number,
    the number counts the seconds after the first message of the lake.

    An SQL query must return the columns endpoint, log_time and data. Example: SELECT * FROM messages WHERE endpoint
    LIKE 'camera%'. If the query returns the column publish_time, this column sets the schedule. Otherwise, the column
    log_time sets the schedule.

    The command stores the messages in a temporary file. The messages can be larger than the memory, but
    must fit on the disk.
    """
    from msgq.errors import InvalidValueError
    from msgq.recording import LogReader

    selection.require_one_selection(query, chosen)
    with tempfile.TemporaryDirectory(prefix="msgq-replay-") as directory:
        path = Path(directory) / "rows.mcap"
        if not selection.write_log(lake, query, chosen, path, version, master):
            source = "selection has" if query is None else "query returned"
            raise InvalidValueError(f"{source} no messages; nothing to play")
        if programs:
            log, time_source = LogReader(path), "publish_time"
            play_deterministic(
                log, programs, time_source, remap, seed, (), (), None, {}, None, as_json, idle_timeout, max_runtime
            )
        else:
            _play_query_result(path, rate, remap, wait_for_readers, backend, prefix, as_json)


def _play_query_result(
    path: Path,
    rate: float,
    remap: NameMapping,
    wait_for_readers: bool,
    backend: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    from msgq.recording import Player

    player = Player(path, rate=rate, remap=remap, wait_for_readers=wait_for_readers, backend=backend, prefix=prefix)
    with player:
        with end_on_interrupt():
            player.run()
        stats = player.stats()
    playing.print_unplayed_endpoints(player, stats)
    if as_json:
        echo_json(stats)
    else:
        echo(
            f"{format_count_noun(stats.messages, 'message')} of "
            f"{format_count_noun(len(player.endpoints), 'endpoint')} played"
        )

"""Common code of the subcommands that play: new names, end of programs, and messages that were not played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo
from msgq.common.selection import parse_pattern
from msgq.common.texts import format_count_noun
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from msgq.recording import Player, PlayerStats
    from msgq.recording.player.remapping import NameMapping


def _parse_remap(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> NameMapping:
    pairs = {old: new for old, _, new in (value.partition(":=") for value in values)}
    if len(pairs) < len(values) or not all(pairs) or not all(pairs.values()):
        raise click.BadParameter(f"{', '.join(values)}: give each remapping as OLD:=NEW, and each OLD once")
    try:
        return {parse_pattern(old): new for old, new in pairs.items()}
    except InvalidValueError as error:
        raise click.BadParameter(str(error)) from None


remap_option = click.option(
    "--remap",
    multiple=True,
    metavar="OLD:=NEW",
    callback=_parse_remap,
    help=r"Play endpoint OLD as NEW. OLD can be a pattern with groups for NEW: '/(.*):=ros_\1'. Repeatable.",
)


rate_option = click.option(
    "-r",
    "--rate",
    type=options.NumberRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Speed relative to the recording. The speed inf plays as fast as possible.",
)
backend_option = click.option(
    "--backend", type=click.Choice(["msgq", "zmq"]), help="Backend to publish on.  [default: $MSGQ_BACKEND]"
)
programs_option = click.option(
    "--deterministic",
    "programs",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="Instead of publishing, run this program twice in virtual time, and compare both runs. Repeatable.",
)
seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Seed for the order of simultaneous events.",
)

#: Adds the options that end programs in virtual time.
add_ending_options = options.combine_options(
    click.option(
        "--idle-timeout",
        type=options.NumberRange(min=0),
        metavar="SECONDS",
        default=10.0,
        show_default=True,
        help="With --deterministic: after the log, stop when SECONDS of virtual time pass without a message.",
    ),
    click.option(
        "--max-runtime",
        type=options.NumberRange(min=0),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="With --deterministic: stop SECONDS of virtual time after the last message of the log.",
    ),
)


def print_unplayed_endpoints(player: Player, stats: PlayerStats) -> None:
    """Print the endpoints and messages that were not played, with reasons."""
    for name, reason in player.skipped.items():
        echo(f"not played: {name!r}: {reason}", err=True)
    for endpoint, count in stats.unplayed.items():
        echo(f"not played: {format_count_noun(count, 'message')} of {endpoint}", err=True)

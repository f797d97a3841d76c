"""`msgq play`: plays a log on the bus, or into programs in virtual time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click
from rich.live import Live

from msgq.cli.bag import arguments
from msgq.cli.common import comparisons, options, playing
from msgq.cli.common.console import get_console, join_display_lines
from msgq.cli.common.deterministic import play_deterministic
from msgq.cli.common.keyboard import DOWN, RIGHT, UP, is_keyboard_available, read_key, unbuffered_keyboard
from msgq.cli.common.render import echo_json
from msgq.cli.common.signals import call_on_interrupt
from msgq.common.formatting import format_bytes, format_count
from msgq.common.storage.url_path import RecordingPath
from msgq.common.texts import format_count_noun
from msgq.recording import Player, PlayerStats
from msgq.recording.player.remapping import NameMapping
from msgq.recording.player.timed_messages import TIME_SOURCES

_KEY_PERIOD_S = 0.1
_STATUS_PERIOD_S = 1.0
_SKIP_STEP_S = 5.0
_RATE_MAX = 1024.0
_KEY_BINDINGS = (
    "Keys: space pauses and resumes; s or right arrow sends the next message; b and f skip 5 s back and forward; "
    "+ or up arrow doubles the rate; - or down arrow halves it; q quits."
)
_KEYS_HINT = "space: pause  s: step  b, f: back, forward 5 s  up, down: rate  q: quit"
_EXIT_CODES = (
    "Exit codes: 0 success, also after q or Ctrl-C; 1 different outputs, or failure (message on stderr); 2 wrong usage."
)


@click.command(epilog=f"{_KEY_BINDINGS} {options.STOP_KEYS} {_EXIT_CODES}")
@arguments.logs_argument
@arguments.add_selection_options
@click.option(
    "--duration",
    type=options.NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Play only the first SECONDS of the selected log.",
)
@playing.rate_option
@click.option("-l", "--loop", is_flag=True, help="Repeat the log without end.")
@click.option("--loops", type=click.IntRange(min=1), metavar="COUNT", help="Play the log COUNT times.  [default: 1]")
@click.option(
    "--time-source",
    type=click.Choice(TIME_SOURCES),
    default=TIME_SOURCES[0],
    show_default=True,
    help="Message time that sets the schedule.",
)
@playing.remap_option
@click.option("--start-paused", is_flag=True, help="Start in the paused state.")
@click.option("--wait-for-readers", is_flag=True, help="Before playing, wait for a subscriber on each endpoint.")
@click.option(
    "--wait-for",
    multiple=True,
    metavar="NAME",
    help="Before playing, wait for a subscriber on this endpoint. Give the name after --remap. Repeatable.",
)
@click.option(
    "--clock",
    "clock_endpoint",
    metavar="NAME",
    help="Publish the log time on this endpoint, as a u64 of nanoseconds.",
)
@click.option(
    "--clock-rate",
    type=options.NumberRange(min=0, min_open=True),
    default=100.0,
    show_default=True,
    metavar="RATE",
    help="Rate of --clock, in messages per second of log time.",
)
@playing.backend_option
@click.option(
    "--segment-size",
    type=options.BYTE_COUNT,
    default=0,
    metavar="BYTES",
    help="Size of new rings.  [default: 1 MiB, or more for large messages]",
)
@click.option("--take-over", is_flag=True, help="Replace publishers of the played topics, also stock publishers.")
@playing.programs_option
@click.option(
    "--reference",
    multiple=True,
    type=options.RECORDING,
    metavar="LOG",
    help="With --deterministic, run the programs once, and compare their messages with this log. Repeatable.",
)
@click.option(
    "--compare-endpoints",
    multiple=True,
    callback=options.compile_regexes,
    metavar="REGEX",
    help="Compare only endpoints whose names contain a match for REGEX. Repeatable.  "
    "[default: all endpoints except the played endpoints]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --deterministic, write the messages of the programs to FILE.",
)
@playing.seed_option
@playing.add_ending_options
@comparisons.add_tolerance_options
@arguments.chunk_limit_option
@options.json_option
@options.prefix_option
def command(
    logs: tuple[RecordingPath, ...],
    names: Sequence[str],
    expressions: Any,
    exclude: Any,
    start: Any,
    end: Any,
    max_chunk_bytes: int,
    loop: bool,
    loops: int | None,
    wait_for_readers: bool,
    wait_for: Sequence[str],
    programs: Sequence[str],
    reference: Sequence[RecordingPath],
    compare_endpoints: Any,
    output: Path | None,
    seed: int,
    tolerances: Any,
    time_tolerance: float | None,
    time_source: str,
    remap: NameMapping,
    idle_timeout: float,
    max_runtime: float,
    as_json: bool,
    **options_of_player: Any,
) -> None:
    """Play recordings with the original timing.

    On a terminal, the progress is shown live. With --json, the command prints one object per second, and one object
    at the end.

    \b
    Example: play the second minute of a recording at half speed
      msgq play drive --start 60 --duration 60 --rate 0.5
    """
    if loop and loops:
        raise click.UsageError("--loop and --loops exclude each other; give one")
    log = arguments.open_log(logs, names, expressions, exclude, start, end, max_chunk_bytes=max_chunk_bytes)
    if programs:
        compared = reference, compare_endpoints, output, tolerances, time_tolerance, as_json
        with arguments.require_endpoints_after(log, names=names, expressions=expressions):
            play_deterministic(log, programs, time_source, remap, seed, *compared, idle_timeout, max_runtime)
        return
    if reference or compare_endpoints or output or tolerances or time_tolerance is not None:
        raise click.UsageError(
            "--reference, --compare-endpoints, --output, --tolerance and --time-tolerance need --deterministic"
        )
    with arguments.require_endpoints_after(log, names=names, expressions=expressions):
        with Player(
            log,
            time_source=time_source,
            remap=remap,
            loops=None if loop else loops or 1,
            wait_for_readers=wait_for_readers or wait_for,
            **options_of_player,
        ) as player:
            stats = _run_player(player, as_json)
        arguments.print_log_problems(log)
        playing.print_unplayed_endpoints(player, stats)
        if as_json:
            echo_json({**asdict(stats), "paused": player.paused, "final": True})
        else:
            get_console().print(format_status(stats, player))


def _run_player(player: Player, as_json: bool) -> PlayerStats:
    """Play, handle the keys, and show the progress."""
    over: list[bool] = []  # no Event, see interruptible
    listens = is_keyboard_available()
    screen = get_console()
    live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal and not as_json else None
    hint = [_KEYS_HINT] if listens else []
    shown = monotonic()
    with ThreadPoolExecutor(1) as pool, call_on_interrupt(lambda: over.append(True)):
        task = pool.submit(player.run)
        try:
            with unbuffered_keyboard() if listens else nullcontext(), live or nullcontext():
                while not task.done() and not over:
                    if listens:
                        _handle_key(read_key(_KEY_PERIOD_S), player)
                    else:
                        sleep(_KEY_PERIOD_S)
                    if live is not None:
                        live.update(join_display_lines([format_status(player.stats(), player), *hint]), refresh=True)
                    elif as_json and monotonic() - shown >= _STATUS_PERIOD_S:
                        shown = monotonic()
                        echo_json({**asdict(player.stats()), "paused": player.paused, "final": False})
        finally:
            player.stop()
        return task.result()


def _handle_key(key: str, player: Player) -> None:
    if key == " ":
        player.resume() if player.paused else player.pause()
    elif key in ("s", RIGHT):
        player.step()
    elif key in ("b", "f"):
        player.skip(-_SKIP_STEP_S if key == "b" else _SKIP_STEP_S)
    elif key in ("+", UP):
        player.set_rate(2 * player.rate if player.rate < _RATE_MAX else inf)
    elif key in ("-", DOWN):
        player.set_rate(max(1 / _RATE_MAX, min(player.rate, 2 * _RATE_MAX) / 2))
    elif key == "q":
        player.stop()


def format_status(stats: PlayerStats, player: Player) -> str:
    """Return the player's statistics in one line."""
    kinds = ", ".join(f"{kind} {format_count(count)}" for kind, count in sorted(stats.by_kind.items()))
    parts = [
        f"{stats.position:.1f} of {player.end:.1f} s",
        f"{format_count_noun(stats.messages, 'message')} of {format_count_noun(len(player.endpoints), 'endpoint')}"
        + (f" ({kinds})" if len(stats.by_kind) > 1 else ""),
        format_bytes(stats.bytes),
        f"late by {stats.late_ns / 1e6:.1f} ms, at most {stats.late_max_ns / 1e6:.1f} ms",
    ]
    if player.rate != 1:
        parts.insert(1, f"rate {player.rate:g}")
    if stats.passes > 1:
        parts.append(f"{stats.passes} passes")
    return ("paused, " if player.paused else "") + ", ".join(parts)

"""`msgq top`: shows all endpoints live."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import click
from rich.live import Live

from msgq.cli.common import options
from msgq.cli.common.keyboard import read_key, unbuffered_keyboard
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.render import echo, echo_json, get_console, join_display_lines, print_awaited_endpoints
from msgq.cli.common.signals import end_on_interrupt
from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.texts import format_count_noun
from msgq.impl.base import clock
from msgq.kinds.stats import AnyEndpointRow, sum_known_values
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints

_SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_POLLS = 16  # looks that a sparkline shows
_SORT_KEYS: dict[str, tuple[str, Callable[[AnyEndpointRow], float | str]]] = {
    "n": ("name", lambda row: row.endpoint),
    "k": ("kind", lambda row: row.kind),
    "r": ("rate", lambda row: -(row.rate or 0)),
    "b": ("bytes", lambda row: -(row.byte_rate or 0)),
    "l": ("lost", lambda row: -(row.lost_rate or 0)),
    "s": ("subscribers", lambda row: -(row.live_subscriber_count or 0)),
    "m": ("memory", lambda row: -row.memory),
}
_SORT_FUNCTIONS = dict(_SORT_KEYS.values())


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@options.endpoints_argument
@click.option(
    "--sort", type=click.Choice(list(_SORT_FUNCTIONS)), default="rate", show_default=True, help="Column to sort by."
)
@options.interval_option(1.0, "Time between two updates, in seconds.")
@options.count_option
@options.once_option
@options.duration_option
@options.auxiliary_option
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...],
    sort: str,
    interval: float,
    count: int | None,
    once: bool,
    duration: float | None,
    everything: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Show a live table of endpoints with rates and losses.

    For queues, the table counts sent messages. For records, the table counts written elements. Unknown values are
    "-".

    The keys n, k, r, b, l, s and m sort by name, kind, rate, bytes, lost, subscribers and memory. The key q quits.
    Without a terminal, each interval is printed below the previous interval. With --json, the command prints one
    object for each endpoint and interval.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    names.find_existing()
    print_awaited_endpoints(names.unmatched)
    poll_rows = _make_poll_iterator(LiveEndpoints(names), interval, RunLimit(1 if once else count, duration))
    screen = get_console()
    with end_on_interrupt():
        if screen.is_terminal and sys.stdin.isatty() and not as_json and not once:
            with Live(console=screen, screen=True, auto_refresh=False) as live, unbuffered_keyboard():
                _run_live(poll_rows, live, sort)
            return
        for rows in poll_rows(time.sleep):
            rows.sort(key=_SORT_FUNCTIONS[sort])
            if as_json:
                for row in rows:
                    echo_json({"time_ns": clock.time_ns(), **row.to_json_fields()})
            else:
                for line in format_display(rows, {}, sort):
                    echo(line)
        names.require_matched()


def _make_poll_iterator(
    board: LiveEndpoints, interval: float, limit: RunLimit
) -> Callable[[Callable[[float], object]], Iterator[list[AnyEndpointRow]]]:
    """Return a function that yields the rows of each poll. The argument of this function waits between two polls."""

    def poll_rows(pause: Callable[[float], object]) -> Iterator[list[AnyEndpointRow]]:
        board.poll()
        done = 0
        while not limit.is_reached(done):
            if pause(max(0, min(interval, limit.remaining_s))) == "q":
                return
            yield board.poll()
            done += 1

    return poll_rows


def _run_live(
    poll_rows: Callable[[Callable[[float], object]], Iterator[list[AnyEndpointRow]]], live: Live, sort: str
) -> None:
    history: dict[str, deque[float]] = {}
    shown: list[AnyEndpointRow] = []

    def show() -> None:
        shown.sort(key=_SORT_FUNCTIONS[sort])
        height = max(1, live.console.height - 1)
        text = join_display_lines(format_display(shown, history, sort)[:height])
        text.no_wrap, text.overflow = True, "crop"
        text.highlight_regex(r"\A.*\n.*", "bold")
        live.update(text, refresh=True)

    def wait_for_key(seconds: float) -> object:
        nonlocal sort
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            key = read_key(left_s)
            if key == "q":
                return key
            if key in _SORT_KEYS:
                sort = _SORT_KEYS[key][0]
                show()
        return None

    for rows in poll_rows(wait_for_key):
        shown = rows
        for row in rows:
            history.setdefault(row.endpoint, deque(maxlen=_SPARKLINE_POLLS)).append(row.byte_rate or row.rate or 0)
        show()


def format_display(rows: Sequence[AnyEndpointRow], history: dict[str, deque[float]], sort: str) -> list[str]:
    """Return the lines of the display. A table's layout would take more time than the polls."""
    rate, byte_rate = sum_known_values(row.rate for row in rows), sum_known_values(row.byte_rate for row in rows)
    head = (
        f"{format_count_noun(len(rows), 'endpoint')}, {format_rate(rate)} messages/s, "
        f"{format_bytes(byte_rate)}/s; by {sort}"
    )
    titles = f"{'endpoint':<28} {'kind':<8} {'publisher':<22} {'subs':>5} {'messages':>14} {'messages/s':>11}"
    text = [head, f"{titles} {'bytes/s':>9} {'lost/s':>9} {'lost':>10} {'memory':>8}"]
    for row in rows:
        text.append(
            f"{_shorten_text(row.endpoint, 28):<28} {row.kind:<8} {_format_publishers(row.publishers):<22} "
            f"{format_count(row.live_subscriber_count):>5} {format_count(row.messages):>14} "
            f"{format_rate(row.rate):>11} {format_bytes(row.byte_rate):>9} "
            f"{format_rate(row.lost_rate):>9} {format_count(row.lost):>10} {format_bytes(row.memory):>8} "
            f"{draw_sparkline(history.get(row.endpoint, ())):<{_SPARKLINE_POLLS if history else 0}} "
            f"{row.note_text}".rstrip()
        )
    return text


def _format_publishers(publishers: Sequence[str]) -> str:
    """Return the publishers in one line."""
    others_text = f" +{len(publishers) - 1}" if len(publishers) > 1 else ""
    return f"{_shorten_text(publishers[0], 22 - len(others_text))}{others_text}" if publishers else "-"


def _shorten_text(text: str, most: int) -> str:
    """Return a text with at most `most` characters.

    The middle is omitted, because a pid at the end must stay complete.
    """
    end = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"


def draw_sparkline(values: Sequence[float]) -> str:
    """Return the values as bars, scaled to the largest value."""
    most = max(values, default=0)
    return "".join(
        _SPARKLINE_BARS[int(value / most * (len(_SPARKLINE_BARS) - 1))] if most else _SPARKLINE_BARS[0]
        for value in values
    )

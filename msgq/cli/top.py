"""`msgq top`: shows all endpoints live."""

import sys
import time
from collections.abc import Callable, Iterator

import click
from rich.live import Live

from msgq.cli.common import options
from msgq.cli.common.console import get_console, join_display_lines
from msgq.cli.common.endpoint_display import SORT_KEYS, EndpointDisplay
from msgq.cli.common.keyboard import read_key, unbuffered_keyboard
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_selection
from msgq.cli.common.signals import end_on_interrupt
from msgq.impl.base import clock
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints

_KEYS_HELP = (
    "Keys: n, k, r, b, l, s and m sort by name, kind, rate, bytes, lost, subscribers and memory; up, down, page up, "
    "page down, home and end scroll; / filters by a part of the name; escape shows all endpoints again; q quits."
)


@click.command(epilog=f"{_KEYS_HELP} {options.EXIT_CODES_ENDLESS}")
@options.endpoints_argument
@click.option(
    "--sort",
    type=click.Choice([order.name for order in SORT_KEYS.values()]),
    default="rate",
    show_default=True,
    help="Column to sort by.",
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
    "-". A narrow terminal shows the most important columns, and names the other columns below the table.

    Without a terminal, each interval is printed below the previous interval. With --json, the command prints one
    object for each endpoint and interval.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    print_selection(names)
    poll_rows = _make_poll_iterator(LiveEndpoints(names), interval, RunLimit(1 if once else count, duration))
    screen, display = get_console(), EndpointDisplay(sort)
    with end_on_interrupt():
        if screen.is_terminal and sys.stdin.isatty() and not as_json and not once:
            with Live(console=screen, screen=True, auto_refresh=False) as live, unbuffered_keyboard():
                _run_live(poll_rows, live, display)
            return
        for rows in poll_rows(time.sleep):
            display.set_rows(rows)
            if as_json:
                for row in display.rows:
                    echo_json({"time_ns": clock.time_ns(), **row.to_json_fields()})
            else:
                for line in display.format_lines(screen.width if screen.is_terminal else None):
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
    poll_rows: Callable[[Callable[[float], object]], Iterator[list[AnyEndpointRow]]],
    live: Live,
    display: EndpointDisplay,
) -> None:
    def show() -> None:
        size = live.console.size
        text = join_display_lines(display.format_screen(size.width, size.height))
        text.no_wrap, text.overflow = True, "crop"
        text.highlight_regex(r"\A.*\n.*", "bold")
        live.update(text, refresh=True)

    def wait_for_key(seconds: float) -> object:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            key = read_key(left_s)
            if key == "q" and not display.is_filter_open:
                return key
            if key and display.handle_key(key, live.console.height):
                show()
        return None

    for rows in poll_rows(wait_for_key):
        display.set_rows(rows)
        show()

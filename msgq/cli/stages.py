"""`msgq stages`: measures waiting and processing times of stages, and shows the tree of hops."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import click
from rich.live import Live

from msgq.cli.common import options
from msgq.cli.common.keyboard import read_key, unbuffered_keyboard
from msgq.cli.common.render import echo, echo_json, get_console, join_display_lines
from msgq.cli.common.signals import end_on_interrupt
from msgq.common import settings, timing
from msgq.common.formatting import format_count, format_microseconds, format_rate
from msgq.common.selection import SelectedEndpoints, parse_patterns
from msgq.common.texts import format_count_noun
from msgq.impl.base import clock
from msgq.monitor.endpoint_selection import no_match_error
from msgq.monitor.hop_tree import HopEdge, HopTree, HopTreeCollector, walk_branches
from msgq.monitor.passive_topics import TopicFollower
from msgq.monitor.sliding_window import DurationSpread
from msgq.monitor.stage_timings import StageCollector, StageRow

_POLL_PERIOD_S = 0.02  # between two looks: nobody wakes who only watches
_SHOW_PERIOD_S = 1.0


class LatencyView(Protocol):
    """A measurement and its output."""

    @property
    def topics(self) -> TopicFollower[Any]:
        """The topics under measurement."""

    def poll(self) -> None:
        """Read the new messages."""

    def format_lines(self) -> list[str]:
        """Return the lines for users."""

    def list_json_objects(self) -> Iterable[dict[str, Any]]:
        """Return the objects for `--json`."""


class StagesView(StageCollector):
    """Measurement of stages."""

    def format_lines(self) -> list[str]:
        """Return a line for each stage and endpoint; durations are microseconds."""
        rows = self.compute_rows()
        stages = format_count_noun(len({row.stage for row in rows}), "stage")
        return [
            f"{stages}, {format_count_noun(len(rows), 'timing topic')}; times in microseconds",
            f"{'':<54} {'wait':^29} {'work':^29} {'age':^29}".rstrip(),
            f"{'stage':<18} {'endpoint':<24} {'messages/s':>10}"
            + f" {_PERCENTILE_TITLES}" * 3
            + f" {'lost':>7} {'malformed':>9}",
            *map(_format_stage_line, rows),
        ]

    def list_json_objects(self) -> Iterator[dict[str, Any]]:
        """Return an object for each stage and endpoint; durations are nanoseconds."""
        now_ns = clock.time_ns()
        return ({"time_ns": now_ns, **asdict(row)} for row in self.compute_rows())


_PERCENTILE_TITLES = f"{'p50':>9} {'p99':>9} {'max':>9}"


def _format_stage_line(row: StageRow) -> str:
    times = " ".join(map(_format_percentiles, (row.queue_time, row.processing_time, row.e2e_latency)))
    counts = f"{format_count(row.lost):>7} {format_count(row.malformed):>9}"
    return f"{row.stage:<18.18} {row.endpoint:<24.24} {format_rate(row.rate):>10} {times} {counts}"


def _format_percentiles(durations: DurationSpread) -> str:
    return " ".join(f"{_format_us(value):>9}" for value in (durations.p50, durations.p99, durations.max))


def _format_us(duration_ns: int | None) -> str:
    return format_microseconds(None if duration_ns is None else duration_ns / 1000)


class HopTreeView(HopTreeCollector):
    """Measurement of hops."""

    def format_lines(self) -> list[str]:
        """Return a line for each edge, below the line of its parent; durations are microseconds."""
        tree = self.build_tree()
        return [
            f"{format_count_noun(tree.messages, 'message')} in {tree.seconds:.1f} s, "
            f"{format_count_noun(tree.cut_chain_count, 'chain')} began earlier; "
            f"{tree.stamped_topic_count} of {format_count_noun(tree.topic_count, 'topic')} with timestamps; "
            "times in microseconds",
            f"{'endpoint':<44} {'messages':>10} {_PERCENTILE_TITLES} {'from origin':>12} {'lost':>9} {'left out':>9}",
            *(_format_hop_line(depth, hop, tree) for depth, hop in walk_branches(tree.hops)),
        ]

    def list_json_objects(self) -> Iterator[dict[str, Any]]:
        """Return an object for each edge; durations are nanoseconds."""
        tree, now_ns = self.build_tree(), clock.time_ns()
        about = {"time_ns": now_ns, "seconds": tree.seconds, "cut": tree.cut_chain_count}
        for hop in tree.hops:
            counts = {"lost": tree.lost[hop.endpoint], "left_out": tree.left_out[hop.endpoint]}
            yield {**about, **asdict(hop), **counts}


def _format_hop_line(depth: int, hop: HopEdge, tree: HopTree) -> str:
    name = "  " * depth + hop.endpoint
    times = " ".join(f"{_format_us(value):>9}" for value in (hop.p50, hop.p99, hop.max))
    counts = f"{format_count(tree.lost[hop.endpoint]):>9} {format_count(tree.left_out[hop.endpoint]):>9}"
    return f"{name:<44.44} {format_count(hop.messages):>10} {times} {_format_us(hop.e2e_p50):>12} {counts}"


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@click.argument("patterns", nargs=-1, metavar="[NAME|PATTERN]...", shell_complete=options.complete_stage)
@click.option(
    "--tree",
    is_flag=True,
    help="Show hops between topics instead of stages. The origins of messages determine the hops.",
)
@click.option(
    "--window",
    type=click.FloatRange(0.1, 3600.0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Duration of the sliding window of all figures, in seconds.",
)
@options.json_option
@options.prefix_option
def command(patterns: tuple[str, ...], tree: bool, window: float, as_json: bool, prefix: str | None) -> None:
    """Show waiting times, processing times and ages of stages.

    Programs define stages with `msgq.StageTracer`. NAME is a stage, or an endpoint that a stage handles. With --tree,
    NAME is a topic, and each line is a hop from the endpoint above to the endpoint of the line. The line shows the
    number of messages in the hop, and the time between cause and result.

    On a terminal, the figures are shown live. The key q quits. Without a terminal, or with --json, the command
    measures for --window SECONDS, prints the figures, and ends.
    """
    selection = SelectedEndpoints(parse_patterns(patterns) or None)
    with settings.overrides(prefix), end_on_interrupt():
        view: LatencyView = (
            HopTreeView(selection.__contains__, window) if tree else StagesView(_match_timing_topics(selection), window)
        )
        screen = get_console()
        if screen.is_terminal and sys.stdin.isatty() and not as_json:
            with Live(console=screen, screen=True, auto_refresh=False) as live, unbuffered_keyboard():
                _run_live(view, live)
            return
        _poll_until_key(view, window, time.sleep)
        _print_view(view, as_json)
        _require_matched(patterns, [*view.topics.by_name, *view.topics.refused])


def _match_timing_topics(selection: SelectedEndpoints) -> Callable[[str], bool]:
    """Return a function that checks whether a timing topic is selected, by its stage, its endpoint or its own name."""
    return lambda topic: any(name in selection for name in (topic, *(timing.parse_timing_topic(topic) or ())))


def _poll_until_key(view: LatencyView, seconds: float, pause: Callable[[float], object]) -> bool:
    """Poll repeatedly for `seconds`. Return False if `pause` requests the end."""
    until_s = time.monotonic() + seconds
    view.poll()
    while (left_s := until_s - time.monotonic()) > 0:
        if pause(min(left_s, _POLL_PERIOD_S)) == "q":
            return False
        view.poll()
    return True


def _print_view(view: LatencyView, as_json: bool) -> None:
    if as_json:
        for line_object in view.list_json_objects():
            echo_json(line_object)
    else:
        for line in view.format_lines():
            echo(line)
    _print_refused_topics(view.topics.refused.items())
    if not view.topics.by_name:
        expected = (
            "topic with timestamps" if isinstance(view, HopTreeView) else "topic of a stage with a `msgq.StageTracer`"
        )
        echo(f"msgq: no {expected} found (docs/guides/tracking.md)", err=True)


def _require_matched(patterns: Sequence[str], topics: Iterable[str]) -> None:
    """Raise an error for names and patterns that selected no topic, stage or endpoint of a stage."""
    names = {name for topic in topics for name in (topic, *(timing.parse_timing_topic(topic) or ()))}
    missing = [
        text for text in patterns if not any(name in SelectedEndpoints(parse_patterns([text])) for name in names)
    ]
    if missing:
        raise no_match_error(missing, names)


def _print_refused_topics(refused: Iterable[tuple[str, str]]) -> None:
    for name, why in sorted(refused):
        echo(f"msgq: left out: {name}: {why}", err=True)


def _run_live(view: LatencyView, live: Live) -> None:
    shown: Sequence[str] = []
    while _poll_until_key(view, _SHOW_PERIOD_S if shown else 0.1, read_key):
        refused = len(view.topics.refused)
        shown = [*view.format_lines(), *([f"{format_count_noun(refused, 'topic')} left out"] if refused else [])]
        text = join_display_lines(shown[: max(1, live.console.height - 1)])
        text.no_wrap, text.overflow = True, "crop"
        text.highlight_regex(r"\A.*\n.*", "bold")
        live.update(text, refresh=True)

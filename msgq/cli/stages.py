"""`msgq stages`: measures waiting and processing times of stages, and shows the tree of hops."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import click
from rich.live import Live

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, OTHER_RANK, RATE_RANK, TableColumn, format_table
from msgq.cli.common.console import get_console, join_display_lines
from msgq.cli.common.keyboard import read_key, unbuffered_keyboard
from msgq.cli.common.render import echo, echo_json
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

_POLL_PERIOD_S = 0.02  # time between two polls, because passive subscribers are not woken
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
        head = f"{stages}, {format_count_noun(len(rows), 'timing topic')}; times in microseconds"
        return [head, *format_table(_STAGE_COLUMNS, rows)]

    def list_json_objects(self) -> Iterator[dict[str, Any]]:
        """Return an object for each stage and endpoint; durations are nanoseconds."""
        now_ns = clock.time_ns()
        return ({"time_ns": now_ns, **asdict(row)} for row in self.compute_rows())


def _format_us(duration_ns: int | None) -> str:
    return format_microseconds(None if duration_ns is None else duration_ns / 1000)


_StageColumn = TableColumn[StageRow]
_SPREAD_RANKS = {"p99": OTHER_RANK, "p50": OTHER_RANK + 1, "max": OTHER_RANK + 2}


def _make_spread_columns(name: str, get_spread: Callable[[StageRow], DurationSpread]) -> list[_StageColumn]:
    def make_column(field: str) -> _StageColumn:
        rank = _SPREAD_RANKS[field]
        return _StageColumn(f"{name} {field}", lambda row: _format_us(getattr(get_spread(row), field)), rank)

    return [make_column(field) for field in ("p50", "p99", "max")]


_STAGE_COLUMNS = (
    _StageColumn("stage", lambda row: row.stage, NAME_RANK, text_width=12),
    _StageColumn("endpoint", lambda row: row.endpoint, NAME_RANK, text_width=16),
    _StageColumn("messages/s", lambda row: format_rate(row.rate), RATE_RANK),
    *_make_spread_columns("wait", lambda row: row.queue_time),
    *_make_spread_columns("work", lambda row: row.processing_time),
    _StageColumn("no CPU", lambda row: _format_us(row.age_parts.no_cpu if row.age_parts else None), OTHER_RANK + 1),
    *_make_spread_columns("age", lambda row: row.e2e_latency),
    _StageColumn("lost", lambda row: format_count(row.lost), LOST_RANK),
    _StageColumn("malformed", lambda row: format_count(row.malformed), OTHER_RANK + 3),
)


class HopTreeView(HopTreeCollector):
    """Measurement of hops."""

    def format_lines(self) -> list[str]:
        """Return a line for each edge, below the line of its parent; durations are microseconds."""
        tree = self.build_tree()
        head = (
            f"{format_count_noun(tree.messages, 'message')} in {tree.seconds:.1f} s; times in microseconds; "
            f"{format_count_noun(tree.cut_chain_count, 'chain')} began earlier; "
            f"{tree.stamped_topic_count} of {format_count_noun(tree.topic_count, 'topic')} with timestamps"
        )
        return [head, *format_table(_make_hop_columns(tree), [*walk_branches(tree.hops)])]

    def list_json_objects(self) -> Iterator[dict[str, Any]]:
        """Return an object for each edge; durations are nanoseconds."""
        tree, now_ns = self.build_tree(), clock.time_ns()
        about = {"time_ns": now_ns, "seconds": tree.seconds, "cut": tree.cut_chain_count}
        for hop in tree.hops:
            counts = {"lost": tree.lost[hop.endpoint], "left_out": tree.left_out[hop.endpoint]}
            yield {**about, **asdict(hop), **counts}


_HopColumn = TableColumn[tuple[int, HopEdge]]


def _make_hop_columns(tree: HopTree) -> list[_HopColumn]:
    """Return the columns of the tree's edges, each with its depth."""
    return [
        _HopColumn("endpoint", lambda row: "  " * row[0] + row[1].endpoint, NAME_RANK, text_width=24),
        _HopColumn("messages", lambda row: format_count(row[1].messages), RATE_RANK),
        _HopColumn("p50", lambda row: _format_us(row[1].p50)),
        _HopColumn("p99", lambda row: _format_us(row[1].p99)),
        _HopColumn("max", lambda row: _format_us(row[1].max)),
        _HopColumn("from origin", lambda row: _format_us(row[1].e2e_p50)),
        _HopColumn("lost", lambda row: format_count(tree.lost[row[1].endpoint]), LOST_RANK),
        _HopColumn("left out", lambda row: format_count(tree.left_out[row[1].endpoint])),
    ]


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@click.argument("patterns", nargs=-1, metavar="[NAME|PATTERN]...", shell_complete=options.complete_stage)
@click.option(
    "--tree",
    is_flag=True,
    help="Show hops between topics instead of stages. The origins of messages determine the hops.",
)
@click.option(
    "--window",
    type=options.NumberRange(0.1, 3600.0),
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
    if isinstance(view, StagesView):
        _print_thread_problems(view.compute_rows())
    if not view.topics.by_name:
        expected = (
            "topic with timestamps" if isinstance(view, HopTreeView) else "topic of a stage with a `msgq.StageTracer`"
        )
        echo(f"msgq: no {expected} found (docs/guides/tracking.md)", err=True)


def _print_thread_problems(rows: Iterable[StageRow]) -> None:
    for row in rows:
        if row.thread_problem:
            name = timing.make_timing_topic(row.stage, row.endpoint)
            echo(f"msgq: no CPU is unknown: {name}: {row.thread_problem}", err=True)


def _require_matched(patterns: Sequence[str], topics: Iterable[str]) -> None:
    """Raise an error for names and patterns that selected no topic, stage or endpoint of a stage."""
    names = {name for topic in topics for name in (topic, *(timing.parse_timing_topic(topic) or ()))}
    missing = [
        text for text in patterns if not any(name in SelectedEndpoints(parse_patterns([text])) for name in names)
    ]
    if missing:
        raise no_match_error(missing, names)


def _print_refused_topics(refused: Iterable[tuple[str, str]]) -> None:
    for name, reason in sorted(refused):
        echo(f"msgq: left out: {name}: {reason}", err=True)


def _run_live(view: LatencyView, live: Live) -> None:
    shown: Sequence[str] = []
    while _poll_until_key(view, _SHOW_PERIOD_S if shown else 0.1, read_key):
        refused = len(view.topics.refused)
        shown = [*view.format_lines(), *([f"{format_count_noun(refused, 'topic')} left out"] if refused else [])]
        text = join_display_lines(shown[: max(1, live.console.height - 1)])
        text.no_wrap, text.overflow = True, "crop"
        text.highlight_regex(r"\A.*\n.*", "bold")
        live.update(text, refresh=True)

"""Texts about the endpoints that names and patterns select, on the standard error."""

from collections.abc import Callable, Sequence

from msgq.cli.common.render import echo
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.kinds import kind_of
from msgq.monitor.endpoint_selection import EndpointSelection

_SHOWN_NAMES = 5


def print_selection(selection: EndpointSelection, is_included: Callable[[str], bool] = lambda _: True) -> None:
    """Print the existing endpoints that the patterns select, and the names and patterns that select none yet.

    `is_included`: returns False for endpoints that the command ignores despite a match.
    """
    if selection.has_patterns:
        print_matches([name for name in selection.list_pattern_matches() if is_included(name)])
    else:
        selection.find_existing()
    _print_awaited_endpoints(selection)


def print_matches(names: Sequence[str]) -> None:
    """Print the endpoints that patterns select; nothing if there are none."""
    if names:
        noun = "topic" if all(not kind_of(name).name_prefix for name in names) else "endpoint"
        shown = join_first_texts(names, _SHOWN_NAMES)
        echo(f"msgq: matched {format_count_noun(len(names), noun)}: {shown}", err=True)


def _print_awaited_endpoints(selection: EndpointSelection) -> None:
    """Print the names and patterns that no endpoint matches yet, with similar names."""
    if selection.unmatched:
        similar = selection.find_similar_to_unmatched()
        hint = f" (did you mean {', '.join(similar)}?)" if similar else ""
        echo(f"msgq: no endpoint matches {', '.join(selection.unmatched)} yet; waiting{hint}", err=True)


def print_left_out(text: str) -> None:
    """Print the reason why an endpoint is not shown."""
    echo(f"msgq: left out: {text}", err=True)

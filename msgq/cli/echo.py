"""`msgq echo`: prints messages on arrival."""

import time
from collections.abc import Callable
from dataclasses import replace

import click

from msgq.cli.common import options
from msgq.cli.common.meters import exit_after_timeout
from msgq.cli.common.payload import decode_payload, format_decoded_value
from msgq.cli.common.render import echo, echo_bytes, echo_json, print_awaited_endpoints, print_left_out
from msgq.cli.common.signals import end_on_interrupt
from msgq.common import settings
from msgq.decoding.payload_decoder import Undecoded
from msgq.decoding.schemas import Schemas
from msgq.impl.base import clock
from msgq.impl.base.core import Poller
from msgq.kinds.opening import open_feed
from msgq.kinds.source import EndpointFeed, SourceItem
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection

_REFRESH_PERIOD_S = 0.25  # how late an endpoint may be noticed that has just come
_POLL_PERIOD_S = 0.02  # the same while there is none, and between two looks at a queue without events


ItemPrinter = Callable[[str, SourceItem], None]


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.required_endpoints_argument
@options.count_option
@options.once_option
@options.timeout_option
@click.option("--hex", "as_hex", is_flag=True, help="Print payloads in hexadecimal, even if there is a schema.")
@click.option("--raw", is_flag=True, help="Print only the bytes of the payloads, without separators.")
@options.add_schema_options
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...],
    count: int | None,
    once: bool,
    timeout: float | None,
    as_hex: bool,
    raw: bool,
    schemas: Schemas | None,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Print new messages, decoded by the schema of the endpoint.

    Payloads without a schema are printed in hexadecimal. For records/NAME, the command prints the existing values
    first, then each change. For queue/NAME, the command prints the waiting messages first. All messages stay in the
    queue. For a queue with events, the command then prints each event. A queue without events is polled for new
    messages. Messages that a receiver takes between two polls are not printed.

    The command is passive: publishers do not notice the command, and never wait. Lost messages are reported on
    stderr.
    """
    if raw + as_hex + as_json > 1 and (raw or not as_json):
        raise click.UsageError("--raw excludes --hex and --json; give one of them, or --hex --json")
    names = EndpointSelection(endpoints, prefix)
    named = len(names.exact_names) != 1 or len(endpoints) > 1
    show = _print_raw_payload if raw else _make_json_printer(as_hex) if as_json else _make_text_printer(as_hex, named)
    if schemas is not None:
        show = _apply_user_schemas(show, schemas)
    with settings.overrides(prefix), end_on_interrupt():
        _show_messages(names, show, 1 if once else count, timeout)


def _show_messages(names: EndpointSelection, show: ItemPrinter, most: int | None, timeout: float | None) -> None:
    feeds: EndpointFollower[EndpointFeed] = EndpointFollower(names, open_feed, print_left_out)
    feeds.refresh()
    print_awaited_endpoints(names.unmatched)
    heard_s, shown = time.monotonic(), 0
    while most is None or shown < most:
        before = shown
        for name, feed in feeds.by_name.items():
            shown += _print_feed_items(name, feed, show, None if most is None else most - shown)
        now_s = time.monotonic()
        if shown != before:
            heard_s = now_s
        elif timeout is not None and now_s - heard_s >= timeout:
            exit_after_timeout(names, timeout)
        if most is None or shown < most:
            _wait_for_feeds(list(feeds.by_name.values()))
            feeds.refresh()
    names.require_matched()


def _wait_for_feeds(feeds: list[EndpointFeed]) -> None:
    """Wait until an item is available, or until the next poll for items and other endpoints."""
    poller = Poller()
    waitables = [feed.waitable for feed in feeds if feed.waitable is not None]
    for waitable in waitables:
        poller.registerSocket(waitable)
    naps = not waitables or len(waitables) < len(feeds)
    if not waitables:
        time.sleep(_POLL_PERIOD_S)
    else:
        poller.poll((_POLL_PERIOD_S if naps else _REFRESH_PERIOD_S) * 1000)


def _print_feed_items(name: str, feed: EndpointFeed, show: ItemPrinter, most: int | None) -> int:
    """Print the available items, and return their number."""
    if most == 0:
        return 0
    items = feed.take_items(most)
    for item in items:
        show(name, item)
    if describe_losses := feed.describe_losses():
        echo(f"msgq: {name}: {describe_losses}", err=True)
    return len(items)


def _apply_user_schemas(show: ItemPrinter, schemas: Schemas) -> ItemPrinter:
    """Return a printer that uses the user's schemas."""
    return lambda name, item: show(name, replace(item, schema=schemas.of(name, item.schema)))


def _print_raw_payload(_name: str, item: SourceItem) -> None:
    if item.data is not None:
        echo_bytes(item.data)


def _make_text_printer(as_hex: bool, named: bool) -> ItemPrinter:
    def print_item(name: str, item: SourceItem) -> None:
        parts = [name] if named else []
        parts += [item.text] if item.text else []
        if item.data is not None:
            value = Undecoded(item.data, "") if as_hex else decode_payload(item.schema, item.data)
            parts.append(format_decoded_value(value))
        echo(": ".join(parts))

    return print_item


def _make_json_printer(as_hex: bool) -> ItemPrinter:
    def print_item(name: str, item: SourceItem) -> None:
        line = {"endpoint": name, "time_ns": clock.time_ns(), **item.json_fields}
        if item.data is None:
            echo_json(line)
            return
        value = Undecoded(item.data, "") if as_hex else decode_payload(item.schema, item.data)
        line["size"] = len(item.data)
        if isinstance(value, Undecoded):
            echo_json({**line, "hex": item.data.hex()} | ({"reason": value.reason} if value.reason else {}))
        else:
            assert item.schema is not None
            echo_json({**line, "schema": item.schema.name, "value": value})

    return print_item

"""`msgq echo`: prints messages on arrival."""

import time

import click

from msgq.cli.common import message_printers, options
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.message_fields import MessageFields
from msgq.cli.common.message_printers import ItemPrinter
from msgq.cli.common.meters import exit_after_timeout
from msgq.cli.common.render import echo
from msgq.cli.common.selections import print_left_out, print_selection
from msgq.cli.common.signals import end_on_interrupt
from msgq.common import settings
from msgq.decoding.schemas import Schemas
from msgq.impl.ring.poller import Poller
from msgq.kinds.opening import open_feed
from msgq.kinds.source import EndpointFeed
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection

_REFRESH_PERIOD_S = 0.25  # maximum delay until a new endpoint is found
_POLL_PERIOD_S = 0.02  # the same without endpoints; also between two polls of a queue without events


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.required_endpoints_argument
@options.count_option
@options.once_option
@options.duration_option
@options.timeout_option
@click.option("--hex", "as_hex", is_flag=True, help="Print payloads in hexadecimal, even if there is a schema.")
@click.option("--raw", is_flag=True, help="Print only the bytes of the payloads, without separators.")
@click.option(
    "--field",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Print only this field of decoded messages: pose.x or ranges[3]. Repeatable.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a header, and a row per message.")
@message_printers.truncate_option
@options.add_schema_options
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...],
    count: int | None,
    once: bool,
    duration: float | None,
    timeout: float | None,
    as_hex: bool,
    raw: bool,
    paths: tuple[str, ...],
    as_csv: bool,
    truncate: int | None,
    schemas: Schemas | None,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Print new messages, decoded by the schema of the endpoint.

    Payloads without a schema are printed as text if they are UTF-8 without control characters. Other payloads
    without a schema are printed in hexadecimal. For records/NAME, the command prints the existing values
    first, then each change. For queue/NAME, the command prints the waiting messages first. All messages stay in the
    queue. For a queue with events, the command then prints each event. A queue without events is polled for new
    messages. Messages that a receiver takes between two polls are not printed. An endpoint that appears while the
    command runs is printed from its first message.

    The command is passive: publishers do not notice the command, and never wait. Lost messages are reported on
    stderr.
    """
    _check_output_options(as_hex, raw, bool(paths), as_csv, truncate is not None, as_json)
    names, fields = EndpointSelection(endpoints, prefix), MessageFields(paths)
    show: ItemPrinter = message_printers.print_raw_payload
    if as_csv:
        show = message_printers.make_csv_printer(fields)
    elif as_json:
        show = message_printers.make_json_printer(fields, as_hex)
    elif not raw:
        most = message_printers.choose_truncation(truncate)
        has_names = len(names.exact_names) != 1 or len(endpoints) > 1
        show = message_printers.make_text_printer(fields, as_hex, has_names, most)
    if schemas is not None:
        show = message_printers.apply_user_schemas(show, schemas)
    with settings.overrides(prefix), end_on_interrupt():
        _show_messages(names, show, RunLimit(1 if once else count, duration), timeout)
        fields.require_matched()


def _check_output_options(as_hex: bool, raw: bool, fields: bool, csv: bool, truncate: bool, as_json: bool) -> None:
    if raw + as_hex + as_json > 1 and (raw or not as_json):
        raise click.UsageError("--raw excludes --hex and --json; give one of them, or --hex --json")
    if csv and (raw or as_hex or as_json):
        raise click.UsageError("--csv, --raw, --hex and --json exclude each other; give one of them")
    if fields and (raw or as_hex):
        raise click.UsageError("--field needs decoded messages; omit --raw and --hex")
    if truncate and (raw or csv or as_json):
        raise click.UsageError("--truncate shortens text for users; omit --raw, --csv and --json")


def _show_messages(names: EndpointSelection, show: ItemPrinter, limit: RunLimit, timeout: float | None) -> None:
    is_new = False

    def open_selected_feed(name: str) -> EndpointFeed:
        return open_feed(name, whole=is_new)

    feeds: EndpointFollower[EndpointFeed] = EndpointFollower(names, open_selected_feed, print_left_out)
    feeds.refresh()
    is_new = True  # endpoints that appear from now on are printed from their first message
    print_selection(names)
    heard_s, shown = time.monotonic(), 0
    while not limit.is_reached(shown):
        before = shown
        for name, feed in feeds.by_name.items():
            shown += _print_feed_items(name, feed, show, limit.count_remaining(shown))
        now_s = time.monotonic()
        if shown != before:
            heard_s = now_s
        elif timeout is not None and now_s - heard_s >= timeout:
            exit_after_timeout(names, timeout)
        if not limit.is_reached(shown):
            _wait_for_feeds(list(feeds.by_name.values()), limit.remaining_s)
            feeds.refresh()
    names.require_matched()


def _wait_for_feeds(feeds: list[EndpointFeed], most_s: float) -> None:
    """Wait until an item is available, or until the next poll for items and other endpoints."""
    poller = Poller()
    waitables = [feed.waitable for feed in feeds if feed.waitable is not None]
    for waitable in waitables:
        poller.registerSocket(waitable)
    naps = not waitables or len(waitables) < len(feeds)
    if not waitables:
        time.sleep(max(0, min(_POLL_PERIOD_S, most_s)))
    else:
        poller.poll(max(0, min(_POLL_PERIOD_S if naps else _REFRESH_PERIOD_S, most_s)) * 1000)


def _print_feed_items(name: str, feed: EndpointFeed, show: ItemPrinter, most: int | None) -> int:
    """Print the available items, and return their number."""
    if most == 0:
        return 0
    items = feed.take_items()[:most]
    for item in items:
        show(name, item)
    if describe_losses := feed.describe_losses():
        echo(f"msgq: {name}: {describe_losses}", err=True)
    return len(items)

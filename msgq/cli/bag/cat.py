"""`msgq bag cat`: prints the messages of a log, one per line."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.message_printers import choose_truncation, truncate_option
from msgq.cli.common.payload import format_decoded_value, format_hex_bytes
from msgq.cli.common.render import echo, echo_bytes, echo_json
from msgq.common.storage.url_path import RecordingPath
from msgq.common.units import NS_PER_S
from msgq.decoding.payload_decoder import convert_decoded_to_json
from msgq.recording import LogReader, Message
from msgq.recording.export.text_export import make_json_row


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@arguments.add_selection_options
@options.count_option
@click.option("--hex", "as_hex", is_flag=True, help="Print payloads in hexadecimal, even if there is a schema.")
@click.option("--raw", is_flag=True, help="Print only the bytes of the payloads, without separators.")
@truncate_option
@options.add_schema_options
@arguments.chunk_limit_option
@options.json_option
def command(
    logs: tuple[RecordingPath, ...],
    count: int | None,
    as_hex: bool,
    raw: bool,
    truncate: int | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Print the messages of recordings in the order of recording.

    Each line has the time (UTC), the endpoint and the payload. The schema of the endpoint decodes the payload. A
    payload without a schema is printed as text if the payload is UTF-8 without control characters, else in
    hexadecimal. With --json, the command prints the same objects as `msgq bag convert --to jsonl`.
    """
    if raw + as_hex + as_json > 1:
        raise click.UsageError("--raw, --hex and --json exclude each other; give one")
    if truncate is not None and (raw or as_json):
        raise click.UsageError("--truncate shortens text for users; omit --raw and --json")
    log = arguments.open_log(logs, **chosen)
    if raw:
        shown = _print_raw_messages(log, count)
    elif as_json:
        shown = _print_json_messages(log, count)
    else:
        shown = _print_text_messages(log, count, as_hex, choose_truncation(truncate))
    arguments.print_log_problems(log)
    if shown != count:  # all messages were read
        arguments.require_endpoints_found(log, **chosen)


def _print_raw_messages(log: LogReader, count: int | None) -> int:
    shown = 0
    for shown, message in enumerate(islice(log, count), 1):  # noqa: B007  # the loop keeps the last number
        echo_bytes(message.data)
    return shown


def _print_json_messages(log: LogReader, count: int | None) -> int:
    shown = 0
    for shown, (message, value) in enumerate(islice(log.decoded(), count), 1):  # noqa: B007
        echo_json(make_json_row(message, value))
    return shown


def _print_text_messages(log: LogReader, count: int | None, as_hex: bool, most: int | None) -> int:
    shown = 0
    for shown, (message, value) in enumerate(islice(log.decoded(), count), 1):  # noqa: B007
        decoded = None if as_hex else convert_decoded_to_json(value, message.data)
        payload = format_hex_bytes(message.data, most) if as_hex else format_decoded_value(decoded, most)
        echo(f"{_format_log_time(message)} {_format_source(message)}: {payload}")
    return shown


def _format_source(message: Message) -> str:
    """Return the endpoint, with the key of a board and the publisher of a channel."""
    key = f"[{message.key}]" if message.key else ""
    return f"{message.endpoint}{key}" + (f" ({message.publisher})" if message.publisher else "")


def _format_log_time(message: Message) -> str:
    seconds, nanoseconds = divmod(message.log_time, NS_PER_S)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}"
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return str(message.log_time)

"""`msgq pub`: publishes messages from the command line."""

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.payload import encode_payload
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import end_on_interrupt
from msgq.common import settings
from msgq.common.formatting import format_count
from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.errors import PoolExhaustedError, QueueFullError, SegmentError, WaitTimeoutError
from msgq.impl.backend import resolve_prefix
from msgq.impl.workqueue.options import PRIORITY_MAX
from msgq.kinds import kind_of, list_stored_kinds, validate_endpoint
from msgq.kinds.publish import PublishOptions, PublishRefusedError, PublishTarget, PublishUsageError
from msgq.monitor.live_endpoints import LiveEndpoint

_READ_BYTES = 1 << 16
EncodeMessage = Callable[[str, bytes | None], bytes]  # a message, and the value for its missing fields


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.endpoint_argument
@click.argument("message", required=False)
@click.option(
    "--format",
    "message_format",
    type=click.Choice(["text", "hex", "json"]),
    help="Format of MESSAGE and of lines. The struct schema of the endpoint packs JSON into bytes.  [default: json if "
    "the endpoint has a struct schema, else text]",
)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Publish the bytes of FILE as one message.",
)
@click.option("--lines", is_flag=True, help="Publish each line of the standard input as a message.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Stop after COUNT messages. MESSAGE is repeated.  [default: 1; no limit with --rate; all lines with --lines]",
)
@click.option(
    "-r",
    "--rate",
    type=options.NumberRange(min=1e-6),
    metavar="RATE",
    help="Highest rate, in messages/s. MESSAGE is repeated.",
)
@options.duration_option
@click.option(
    "--index", type=click.IntRange(min=0), metavar="INDEX", help="Index of the element to write (vectors only)."
)
@click.option("--key", metavar="KEY", help="Key of the value to write (boards only).")
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    metavar="PRIORITY",
    help="Priority of the message (queues only).  [default: 0]",
)
@click.option(
    "--wait-for-subscribers",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Wait for COUNT subscribers before the first message.",
)
@options.timeout_option
@click.option("--force", is_flag=True, help="Replace a living publisher of the topic.")
@options.json_option
@options.prefix_option
def command(
    endpoint: str,
    message: str | None,
    message_format: str | None,
    path: Path | None,
    lines: bool,
    rate: float | None,
    count: int | None,
    duration: float | None,
    priority: int | None,
    index: int | None,
    key: str | None,
    wait_for_subscribers: int | None,
    timeout: float | None,
    force: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Publish MESSAGE, a file, or lines of the standard input.

    An endpoint is a topic (NAME), a channel (channel/NAME), a work queue (queue/NAME), or a vector or board
    (records/NAME). Missing topics, channels and queues are created. In records/NAME, the command writes an element of
    a vector (--index) or a value of a board (--key). A topic has one publisher. To replace a living publisher, give
    --force.

    For a struct schema, JSON needs all fields of the message. In records/NAME, if the element was written before,
    missing fields keep their values. To keep the values of missing fields, the command reads the element before the
    write. If another process writes the element between this read and this write, the change of the other process is
    lost.

    The option --timeout limits the wait for subscribers, and the wait for room in a full queue. At the end, the
    command prints the numbers of published messages and of subscribers on stderr. With --json, the command prints one
    object with the totals instead.
    """
    if (message is not None) + (path is not None) + lines != 1:
        raise click.UsageError("MESSAGE, --file and --lines exclude each other; give exactly one")
    endpoint = validate_endpoint(endpoint)
    kind, is_json = kind_of(endpoint), message_format == "json"
    options = {"force": force, "priority": priority is not None, "index": index is not None, "key": key is not None}
    _check_options(endpoint, {option for option, is_given in options.items() if is_given})
    publish_options = PublishOptions(endpoint, kind.bare_name(endpoint), is_json, force, priority, index, key, timeout)
    with settings.overrides(prefix), _raise_click_errors():
        target = kind.publish.open_target(publish_options)
        encode = _make_encoder(
            message_format or ("json" if _is_struct_schema(target.schema) else "text"), target.schema
        )
        if message is not None:
            encode(message, target.read_previous_value())  # an error comes before the first message
        data = None if path is None else path.read_bytes()
        with target:
            with end_on_interrupt(), _exit_on_timeout():
                if wait_for_subscribers is not None:
                    target.wait_for_readers(wait_for_subscribers)
                limit = RunLimit(_choose_message_limit(count, rate, lines), duration)
                payloads = _generate_payloads(target, encode, message, data, limit)
                _publish_payloads(target, payloads, rate, limit)
            subscriber_count = _count_subscribers(endpoint)
            if as_json:
                echo_json({**target.summarize_messages(), "subscribers": subscriber_count})
            else:
                echo(_describe_published(target.published_count, subscriber_count), err=True)


def _count_subscribers(endpoint: str) -> int | None:
    """Return the number of living subscribers; None: unknown."""
    if not kind_of(endpoint).name_prefix and settings.get_backend_name() != "msgq":
        return None  # a topic outside of the shared memory
    try:
        return LiveEndpoint(endpoint, resolve_prefix()).poll().live_subscriber_count
    except SegmentError:
        return None


def _describe_published(messages: int, subscribers: int | None) -> str:
    text = f"published {format_count(messages)}"
    if subscribers == 0:
        return f"{text}, no subscribers (passive subscribers such as `msgq echo` do not count)"
    return text if subscribers is None else f"{text}, {format_count_noun(subscribers, 'subscriber')}"


def _check_options(endpoint: str, options: set[str]) -> None:
    """Raise an error for options of other kinds."""
    for option in sorted(options - kind_of(endpoint).publish.allowed_options):
        (kind, *_) = (
            stored_kind for stored_kind in list_stored_kinds("publish") if option in stored_kind.publish.allowed_options
        )
        usable_endpoint = kind.endpoint("NAME") if kind.name_prefix else kind.plural_name
        raise click.UsageError(f"--{option} cannot be used with {endpoint}; use --{option} for {usable_endpoint}")


@contextlib.contextmanager
def _raise_click_errors() -> Iterator[None]:
    """Raise the errors of a kind as errors of the command."""
    try:
        yield
    except PublishUsageError as error:
        raise click.UsageError(str(error)) from None
    except PublishRefusedError as error:
        raise click.ClickException(str(error)) from None


@contextlib.contextmanager
def _exit_on_timeout() -> Iterator[None]:
    """After a timeout, exit with the code for timeouts."""
    try:
        yield
    except (WaitTimeoutError, QueueFullError, PoolExhaustedError) as error:
        echo(f"msgq: {error}", err=True)
        raise SystemExit(options.TIMEOUT_EXIT_CODE) from None


def _is_struct_schema(schema: Schema | None) -> bool:
    return schema is not None and schema.encoding == "struct"


def _make_encoder(kind: str, schema: Schema | None) -> EncodeMessage:
    def encode_json(text: str, former: bytes | None) -> bytes:
        try:
            value: Any = json.loads(text)
            if schema is not None and _is_struct_schema(schema):
                return encode_payload(schema, value, former)
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise click.ClickException(f"MESSAGE {text[:60]!r} cannot be encoded from JSON: {error}") from None

    def decode_hex(text: str, _former: bytes | None) -> bytes:
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            raise click.ClickException(f"MESSAGE {text[:60]!r} is not hexadecimal: {error}") from None

    def encode_text(text: str, _former: bytes | None) -> bytes:
        return text.encode(errors="surrogateescape")  # bytes that are not UTF-8 stay unchanged

    encoders: dict[str, EncodeMessage] = {"text": encode_text, "hex": decode_hex, "json": encode_json}
    return encoders[kind]


def _generate_payloads(
    target: PublishTarget, encode: EncodeMessage, message: str | None, data: bytes | None, limit: RunLimit
) -> Iterator[bytes]:
    """Yield the same message or data forever, or the lines of the standard input."""
    while data is not None:
        yield data
    while message is not None:
        yield encode(message, target.read_previous_value())
    for line in _read_lines(limit):
        text = line.decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r")
        yield encode(text, target.read_previous_value())


def _read_lines(limit: RunLimit) -> Iterator[bytes]:
    """Yield the lines of the standard input until its end, or the end of the duration."""
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # text of a test, which never waits
        yield from sys.stdin.buffer
        return
    rest: list[bytes] = []  # parts of a line whose end has not been read
    while _wait_for_input(descriptor, limit.remaining_s):
        block = os.read(descriptor, _READ_BYTES)
        first, *others = block.split(b"\n")
        rest.append(first)
        if others:
            yield b"".join(rest)
            yield from others[:-1]
            rest = others[-1:]
        if not block:
            if line := b"".join(rest):
                yield line
            return


def _wait_for_input(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], None if seconds == inf else max(0.0, seconds))[0])


def _choose_message_limit(count: int | None, rate: float | None, lines: bool) -> int | None:
    return count if count is not None or lines or rate is not None else 1


def _publish_payloads(target: PublishTarget, payloads: Iterator[bytes], rate: float | None, limit: RunLimit) -> None:
    due_s, sent = time.monotonic(), 0
    # The first message is due at once, so that a run publishes it however late the process gets its turn.
    while not (sent and limit.is_reached(sent)) and (data := next(payloads, None)) is not None:
        if rate is not None and sent:
            time.sleep(max(0.0, min(due_s - time.monotonic(), limit.remaining_s)))
            if limit.is_reached(sent):
                break
        if rate is not None:
            due_s = max(due_s + 1 / rate, time.monotonic() - 1)  # after a stop, no flood to catch up
        target.send(data)
        sent += 1

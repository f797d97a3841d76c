"""`msgq pub`: publishes messages from the command line."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import msgq
from msgq import naming
from msgq.cli.common import options
from msgq.cli.common.payload import encode
from msgq.cli.common.render import echo, echo_json, publisher
from msgq.cli.common.signals import until_interrupted
from msgq.errors import SegmentError, WaitTimeoutError
from msgq.impl.ring import PubSocket
from msgq.schema import Schema
from msgq.stats import topic

_JSON = Schema("json", "json")

Encode = Callable[[str], bytes]


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.endpoint
@click.argument("message", required=False)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["text", "hex", "json"]),
    default="text",
    show_default=True,
    help="What MESSAGE and lines are. JSON is packed into the endpoint's struct schema if it has one.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Publish what is in this file, as one message.",
)
@click.option("--lines", is_flag=True, help="Publish each line of the standard input, as it comes.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="HZ", help="At most so many a second.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    help="Publish so many messages: MESSAGE again and again.  [default: 1; with --rate until Ctrl-C; all lines]",
)
@click.option("--wait", type=click.IntRange(min=1), metavar="N", help="Wait for N subscribers before anything is sent.")
@options.timeout
@click.option("--force", is_flag=True, help="Take the endpoint over from a publisher that lives.")
@options.as_json
@options.prefix
def command(
    endpoint: str,
    message: str | None,
    kind: str,
    path: Path | None,
    lines: bool,
    rate: float | None,
    count: int | None,
    wait: int | None,
    timeout: float | None,
    force: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Publish MESSAGE, a file, or the lines of the standard input.

    An endpoint has one publisher: this refuses to take one over from a publisher that lives, unless --force.
    --timeout says how long --wait may take. With --json there is one object at the end, with what was published.
    """
    if (message is not None) + (path is not None) + lines != 1:
        raise click.UsageError("give MESSAGE, --file or --lines, one of them")
    with naming.chosen(prefix):
        schema = _look(endpoint, force)
        encode = _encoder(kind, schema)
        data = encode(message) if message is not None else path.read_bytes() if path is not None else None
        with PubSocket() as socket:
            socket.connect(msgq.context, endpoint, schema=_JSON if kind == "json" and schema is None else None)
            with until_interrupted():
                if wait is not None:
                    _wait(socket, wait, timeout)
                _publish(socket, _payloads(data, encode), rate, _most(count, rate, lines))
            if as_json:
                echo_json(asdict(socket.stats()))


def _look(endpoint: str, force: bool) -> Schema | None:
    """Return the endpoint's schema, and refuse when somebody publishes there."""
    try:
        there = topic(endpoint)
    except SegmentError as error:
        if error.errno is not None:  # there is none yet
            return None
        raise
    alive = there.publisher_kind == "stock" or (there.publisher is not None and there.publisher.alive is not False)
    if alive and not force:
        text = f"{endpoint} is published by {publisher(there)}, which this would cut off; --force does it all the same"
        raise click.ClickException(text)
    return there.schema


def _encoder(kind: str, schema: Schema | None) -> Encode:
    def packed(text: str) -> bytes:
        try:
            value: Any = json.loads(text)
            if schema is not None and schema.encoding == "struct":
                return encode(schema, value)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise click.ClickException(f"{text[:60]!r} cannot be sent as JSON: {error}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def from_hex(text: str) -> bytes:
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            raise click.ClickException(f"{text[:60]!r} is not hexadecimal: {error}") from None

    encoders: dict[str, Encode] = {"text": str.encode, "hex": from_hex, "json": packed}
    return encoders[kind]


def _payloads(data: bytes | None, encode: Encode) -> Iterator[bytes]:
    """The same message for ever, or what the standard input says."""
    while data is not None:
        yield data
    for line in sys.stdin:
        yield encode(line.removesuffix("\n"))


def _most(count: int | None, rate: float | None, lines: bool) -> int | None:
    return count if count is not None or lines or rate is not None else 1


def _wait(socket: PubSocket, readers: int, timeout: float | None) -> None:
    try:
        socket.wait_for_readers(timeout, n=readers)
    except WaitTimeoutError:
        echo(f"msgq: {socket.endpoint} had no {readers} subscribers within {timeout:g} s", err=True)
        raise SystemExit(options.EXIT_TIMEOUT) from None


def _publish(socket: PubSocket, payloads: Iterator[bytes], rate: float | None, most: int | None) -> None:
    due_s, sent = time.monotonic(), 0
    while (most is None or sent < most) and (data := next(payloads, None)) is not None:
        if rate is not None:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s = max(due_s + 1 / rate, time.monotonic() - 1)  # after a stop, no flood to catch up
        socket.send(data)
        sent += 1

"""`msgq echo`: the messages as they come."""

import time
from collections.abc import Callable

import click

import msgq
from msgq import naming
from msgq.cli.common import options
from msgq.cli.common.meters import give_up, say_waiting
from msgq.cli.common.names import Followed, Names
from msgq.cli.common.payload import decode
from msgq.cli.common.render import echo, echo_bytes, echo_json
from msgq.cli.common.signals import until_interrupted
from msgq.impl.ground import clock
from msgq.impl.ring import Poller, SubSocket
from msgq.recording.reader.decoders import Undecoded
from msgq.recording.reader.json_values import json_text
from msgq.schema import Schema
from msgq.stats import topic

_LOOK_S = 0.25  # how late an endpoint may be noticed that has just come


class Source:
    """An endpoint that is listened to, passively."""

    def __init__(self, name: str) -> None:
        self.socket = SubSocket()
        self.socket.connect(msgq.context, name, passive=True)
        self.socket.setTimeout(0)
        self.schema: Schema | None = topic(name).schema
        self._lost: int | None = 0

    def newly_lost(self) -> int | None:
        """How many messages were overwritten since the last call before we looked; None: some, but nobody knows."""
        before, self._lost = self._lost, self.socket.lost
        if self._lost is None:
            return 0 if before is None else None  # said once
        return self._lost - (before or 0)


Show = Callable[[str, Source, bytes], None]


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.some_endpoints
@options.count
@options.once
@options.timeout
@click.option("--hex", "as_hex", is_flag=True, help="Payloads in hexadecimal, whatever the schema says.")
@click.option("--raw", is_flag=True, help="Payloads as they are, one after the other, and nothing else.")
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...],
    count: int | None,
    once: bool,
    timeout: float | None,
    as_hex: bool,
    raw: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Show messages from now on, one a line: decoded by the endpoint's schema, in hexadecimal where there is none.

    Passive: publishers do not notice it, and do not wait for it; what it lost is said on the standard error.
    """
    if raw + as_hex + as_json > 1 and (raw or not as_json):
        raise click.UsageError("--raw, --hex and --json: choose one; --hex --json go together")
    names = Names(endpoints, prefix)
    named = len(names.plain) != 1 or len(endpoints) > 1
    show = _show_raw if raw else _show_json(as_hex) if as_json else _show_line(as_hex, named)
    with naming.chosen(prefix), until_interrupted():
        _run(names, show, 1 if once else count, timeout)


def _run(names: Names, show: Show, most: int | None, timeout: float | None) -> None:
    sources: Followed[Source] = Followed(names, Source)
    sources.refresh()
    if not sources.by_name:
        say_waiting(names)
    heard_s, shown = time.monotonic(), 0
    while most is None or shown < most:
        before = shown
        _wait(list(sources.by_name.values()))
        for name, source in sources.by_name.items():
            shown += _take(name, source, show, None if most is None else most - shown)
        now_s = time.monotonic()
        if shown != before:
            heard_s = now_s
        elif timeout is not None and now_s - heard_s >= timeout:
            give_up(names, timeout)
        sources.refresh()


def _wait(sources: list[Source]) -> None:
    """Return when there is something, or it is time to look for other endpoints."""
    if not sources:
        time.sleep(0.02)
        return
    poller = Poller()
    for source in sources:
        poller.registerSocket(source.socket)
    poller.poll(_LOOK_S * 1000)


def _take(name: str, source: Source, show: Show, most: int | None) -> int:
    """Show what is there; returns how many messages that were."""
    messages = source.socket.receive_many(most)
    if messages:
        source.schema = topic(name).schema if source.schema is None else source.schema
    for message in messages:
        show(name, source, message)
    if lost := source.newly_lost():
        echo(f"msgq: {name}: lost {lost} messages, which came faster than they were shown", err=True)
    elif lost is None:
        echo(f"msgq: {name}: lost messages, which came faster than they were shown", err=True)
    return len(messages)


def _show_raw(_name: str, _source: Source, message: bytes) -> None:
    echo_bytes(message)


def _show_line(as_hex: bool, named: bool) -> Show:
    def show(name: str, source: Source, message: bytes) -> None:
        value = Undecoded(message, "") if as_hex else decode(source.schema, message)
        text = _hex(value) if isinstance(value, Undecoded) else json_text(value, ensure_ascii=False)
        echo(f"{name}: {text}" if named else text)

    return show


def _hex(value: Undecoded) -> str:
    return value.data.hex(" ", 4) + (f"  ({value.reason})" if value.reason else "")


def _show_json(as_hex: bool) -> Show:
    def show(name: str, source: Source, message: bytes) -> None:
        value = Undecoded(message, "") if as_hex else decode(source.schema, message)
        line = {"endpoint": name, "time_ns": clock.time_ns(), "size": len(message)}
        if isinstance(value, Undecoded):
            echo_json({**line, "hex": message.hex()} | ({"reason": value.reason} if value.reason else {}))
        else:
            assert source.schema is not None
            echo_json({**line, "schema": source.schema.name, "value": value})

    return show

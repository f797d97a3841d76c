"""`msgq stat`: a line a second for all endpoints together, as vmstat has it for the system."""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_rows import AnyRow, total
from msgq.cli.common.endpoint_selection import EndpointSelection, print_waiting
from msgq.cli.common.live_endpoints import LiveEndpoints
from msgq.cli.common.render import echo, echo_json, in_bytes, in_rate
from msgq.cli.common.signals import until_interrupted
from msgq.common.naming import SHARED_MEMORY
from msgq.impl.base import clock
from msgq.kinds import CHANNEL, QUEUE, RECORDS, TOPIC, kind_of

_HEAD_PERIOD = 20  # lines


@dataclass(frozen=True)
class Line:
    """All endpoints, at one moment. What nobody counts is None.

    Attributes
    ----------
    topics, channels, records, queues : how many there are of each kind; topics that announce frames are topics.
    publishers : those that publish, send or write, and live, as far as one can tell.
    dead : participants that died.
    subscribers : those that subscribe or receive, and live. Who reads records leaves no trace.
    rate, byte_rate, lost_rate : messages, bytes and lost messages a second.
    silent : endpoints of which nothing came since the line before.
    shm_used, shm_free : bytes of the memory that all this lives in.
    """

    time_ns: int
    topics: int
    publishers: int
    dead: int
    subscribers: int
    rate: float | None
    byte_rate: float | None
    lost_rate: float | None
    silent: int
    shm_used: int
    shm_free: int
    channels: int
    records: int
    queues: int


#: What people see of a line: titles, figures, and widths.
_COLUMNS: tuple[tuple[str, Callable[[Line], str], int], ...] = (
    ("topics", lambda line: str(line.topics), 6),
    ("chan", lambda line: str(line.channels), 5),
    ("recs", lambda line: str(line.records), 5),
    ("queues", lambda line: str(line.queues), 6),
    ("publ", lambda line: str(line.publishers), 5),
    ("dead", lambda line: str(line.dead), 5),
    ("subs", lambda line: str(line.subscribers), 5),
    ("messages/s", lambda line: in_rate(line.rate), 12),
    ("bytes/s", lambda line: in_bytes(line.byte_rate), 10),
    ("lost/s", lambda line: in_rate(line.lost_rate), 10),
    ("silent", lambda line: str(line.silent), 7),
    ("shm used", lambda line: in_bytes(line.shm_used), 10),
    ("shm free", lambda line: in_bytes(line.shm_free), 10),
)


@click.command(epilog=options.EXIT_CODES_RUNNING.replace("; 3 nothing came within --timeout", ""))
@options.endpoints
@options.interval(1.0)
@options.count
@options.once
@options.everything
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...],
    interval: float,
    count: int | None,
    once: bool,
    everything: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Show all endpoints of all kinds, or those that are named, in one line a second.

    The columns: topics, channels, vectors and boards, queues; who publishes, sends or writes, and lives; participants
    that died; who subscribes or receives (who reads records leaves no trace); what is published, sent or written, and
    what is lost by subscribers (nobody counts the bytes of queues and boards); endpoints without a message since the
    last line; the memory that all this lives in.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    board = LiveEndpoints(names)
    board.poll()
    print_waiting(names.unmatched)
    lines, most = 0, 1 if once else count
    with until_interrupted():
        while most is None or lines < most:
            time.sleep(interval)
            line = summarize(board.poll())
            if as_json:
                echo_json(line)
            else:
                if lines % _HEAD_PERIOD == 0:
                    echo(_text(title for title, _, _ in _COLUMNS))
                echo(_text(figure(line) for _, figure, _ in _COLUMNS))
            lines += 1
        names.require_matched()


def summarize(rows: Sequence[AnyRow]) -> Line:
    """Add up what the endpoints did."""
    kinds = [kind_of(row.endpoint) for row in rows]
    space = shutil.disk_usage(SHARED_MEMORY)
    return Line(
        time_ns=clock.time_ns(),
        topics=kinds.count(TOPIC),
        publishers=sum(row.publishing for row in rows),
        dead=sum(row.dead for row in rows),
        subscribers=sum(row.subscribing or 0 for row in rows),
        rate=total(row.rate for row in rows),
        byte_rate=total(row.byte_rate for row in rows),
        lost_rate=total(row.lost_rate for row in rows),
        silent=sum(not row.rate and not row.byte_rate for row in rows),
        shm_used=space.used,
        shm_free=space.free,
        channels=kinds.count(CHANNEL),
        records=kinds.count(RECORDS),
        queues=kinds.count(QUEUE),
    )


def _text(cells: Iterable[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, (_, _, width) in zip(cells, _COLUMNS, strict=True))

"""`msgq stat`: a line a second for all topics together, as vmstat has it for the system."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from msgq.cli.common import options
from msgq.cli.common.board import Board, Row, subscriber_count
from msgq.cli.common.names import Names
from msgq.cli.common.render import echo, echo_json, in_bytes, in_rate
from msgq.cli.common.signals import until_interrupted
from msgq.impl.ground import clock
from msgq.naming import SHARED_MEMORY

_HEAD_PERIOD = 20  # lines
_COLUMNS = ("topics", "publ", "dead", "subs", "messages/s", "bytes/s", "lost/s", "silent", "shm used", "shm free")


@dataclass(frozen=True)
class Line:
    """All topics, at one moment. Rates are messages or bytes a second; `silent`: topics without a message since."""

    time_ns: int
    topics: int
    publishers: int
    dead: int
    subscribers: int
    rate: float
    byte_rate: float
    lost_rate: float
    silent: int
    shm_used: int
    shm_free: int


@click.command(epilog=options.EXIT_CODES_RUNNING.replace("; 3 nothing came within --timeout", ""))
@options.endpoints
@options.interval(1.0)
@options.count
@options.once
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...], interval: float, count: int | None, once: bool, as_json: bool, prefix: str | None
) -> None:
    """Show all topics, or those that are named, in one line a second.

    The columns: topics; living publishers; participants that died; subscribers; what is published, and what is lost by
    subscribers; topics without a message since the last line; the memory that topics live in.
    """
    board = Board(Names(endpoints, prefix))
    board.look()
    lines, most = 0, 1 if once else count
    with until_interrupted():
        while most is None or lines < most:
            time.sleep(interval)
            line = summarize(board.look())
            if as_json:
                echo_json(line)
            else:
                if lines % _HEAD_PERIOD == 0:
                    echo(_text(_COLUMNS))
                echo(_text(_figures(line)))
            lines += 1


def summarize(rows: Sequence[Row]) -> Line:
    """Add up what the topics did."""
    participants = [one.participant for row in rows for one in row.stats.subscribers]
    publishers = [row.stats.publisher for row in rows if row.stats.publisher is not None]
    space = shutil.disk_usage(SHARED_MEMORY)
    return Line(
        time_ns=clock.time_ns(),
        topics=len(rows),
        publishers=sum(one.alive is not False for one in publishers) + sum(row.stock for row in rows),
        dead=sum(one.alive is False for one in [*participants, *publishers]),
        subscribers=sum(subscriber_count(row) for row in rows),
        rate=sum(row.rate or 0 for row in rows),
        byte_rate=sum(row.byte_rate or 0 for row in rows),
        lost_rate=sum(row.lost_rate or 0 for row in rows),
        silent=sum(not row.byte_rate for row in rows),
        shm_used=space.used,
        shm_free=space.free,
    )


def _figures(line: Line) -> list[str]:
    figures = list(asdict(line).values())[1:]
    rates = [in_rate(figures[4]), in_bytes(figures[5]), in_rate(figures[6])]
    return [*map(str, figures[:4]), *rates, str(figures[7]), in_bytes(figures[8]), in_bytes(figures[9])]


def _text(cells: Sequence[str]) -> str:
    widths = (6, 5, 5, 5, 12, 10, 10, 7, 10, 10)
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

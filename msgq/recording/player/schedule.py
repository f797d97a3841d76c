"""What is to be played, and when: the messages of a log in the order of the time that counts."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from types import MappingProxyType

from msgq.errors import InvalidValueError
from msgq.kinds import QUEUE
from msgq.outlets import Played
from msgq.outlets.queues import is_sent
from msgq.record_changes import INDEX_BYTES
from msgq.recording.player.plan import new_name
from msgq.recording.reader.message import Message
from msgq.recording.reader.reader import LogReader
from msgq.units import NS_PER_S

TIMES = ("publish_time", "log_time")
#: A publish_time that is further from the log_time is not believed; and so much of a log waits to be put in order.
BELIEVED_NS = NS_PER_S


def played(
    log: LogReader, by: str = "publish_time", remap: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Played]:
    """Give the messages of a log as `Simulation.play` takes them, in the order of their times, which never go back.

    Parameters
    ----------
    log : with the endpoints and the time that are wanted.
    by : "publish_time", or "log_time": when it was recorded, in exactly that order. A publish_time that is more than a
        second away from the log_time is not believed, and messages of one endpoint keep their order in any case.
    remap : new names of endpoints, of the same kind. What has none, and a name that cannot be an endpoint (a topic of
        ROS, with "/"), is left out. So are events of work queues that are not of messages that were sent: they come
        again by themselves.

    Raises
    ------
    InvalidValueError : `by` is neither; a new name is of another kind.
    """
    if by not in TIMES:
        raise InvalidValueError(f"by {by!r} is not possible; give one of {', '.join(TIMES)}")
    return _named(timed(log, by), remap)


def latched(before: LogReader, remap: Mapping[str, str]) -> list[Played]:
    """Return the last change of each element of a vector, and of each key of a board; oldest first.

    Parameters
    ----------
    before : what was written to vectors and boards before the time that counts; see `LogReader.history`.
    remap : as of `played`.
    """
    found: dict[tuple[str, str, bytes], Played] = {}
    for message in _named(timed(before, "log_time"), remap):
        key = message.source.key
        what = message.endpoint, key, b"" if key else message.data[:INDEX_BYTES]
        found.pop(what, None)
        found[what] = message
    return list(found.values())


def timed(log: LogReader, by: str) -> Iterator[tuple[int, Message]]:
    """Give messages with the time that counts, in its order."""
    return _published(log) if by == "publish_time" else ((message.log_time, message) for message in log)


def _named(ordered: Iterator[tuple[int, Message]], remap: Mapping[str, str]) -> Iterator[Played]:
    names: dict[str, str | None] = {}
    for time_ns, message in ordered:
        if message.endpoint not in names:
            names[message.endpoint] = new_name(message.endpoint, message.kind, remap)
        name = names[message.endpoint]
        if name is None or (message.kind == QUEUE.name and not is_sent(message.data)):
            continue
        origin = message.origin_time
        age_ns = message.publish_time - origin if origin else None
        yield Played(time_ns, name, message.data, age_ns, message.source, message.schema)


def _published(log: LogReader) -> Iterator[tuple[int, Message]]:
    waiting: list[tuple[int, int, Message]] = []
    latest: dict[str, int] = {}
    for number, message in enumerate(log):
        while waiting and waiting[0][0] < message.log_time - BELIEVED_NS:  # nothing that follows can be earlier
            time_ns, _, first = heappop(waiting)
            yield time_ns, first
        believed = abs(message.publish_time - message.log_time) <= BELIEVED_NS
        time_ns = message.publish_time if believed else message.log_time
        time_ns = latest[message.endpoint] = max(time_ns, latest.get(message.endpoint, 0))
        heappush(waiting, (time_ns, number, message))
    while waiting:
        time_ns, _, first = heappop(waiting)
        yield time_ns, first


def with_ticks(messages: Iterator[Played], endpoint: str, rate_hz: float, begin_ns: int) -> Iterator[Played]:
    """Put the log's time between the messages: u64 nanoseconds, little endian, at a steady rate of log time.

    Being of the log's time and not of ours, they are the same each time; and each stands before what happens then.
    """
    count = 0
    for message in messages:
        while (time_ns := begin_ns + round(count * NS_PER_S / rate_hz)) <= message.time_ns:
            yield Played(time_ns, endpoint, struct.pack("<Q", time_ns))
            count += 1
        yield message

"""What is to be played, and when: the messages of a log in the order of the time that counts."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from types import MappingProxyType

from msgq import naming
from msgq.errors import EndpointNameError, InvalidValueError
from msgq.recording.reader.message import Message
from msgq.recording.reader.reader import LogReader
from msgq.units import NS_PER_S

TIMES = ("publish_time", "log_time")
#: A publish_time that is further from the log_time is not believed; and so much of a log waits to be put in order.
BELIEVED_NS = NS_PER_S

#: Nanoseconds since the epoch, endpoint, payload.
Played = tuple[int, str, bytes]
#: The same, and how old what it comes from was when it was published; None: nobody knows.
Aged = tuple[int, str, bytes, int | None]


def played(
    log: LogReader, by: str = "publish_time", remap: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Played]:
    """Give the messages of a log as `Simulation.play` takes them: (nanoseconds, endpoint, data), times never go back.

    Parameters
    ----------
    log : with the endpoints and the time that are wanted.
    by : "publish_time", or "log_time": when it was recorded, in exactly that order. A publish_time that is more than a
        second away from the log_time is not believed, and messages of one endpoint keep their order in any case.
    remap : new names of endpoints. What has none, and a name that cannot be an endpoint (a topic of a picture, or of
        ROS, with "/"), is left out.

    Raises
    ------
    InvalidValueError : `by` is neither.
    """
    if by not in TIMES:
        raise InvalidValueError(f"by {by!r} is not possible; give one of {', '.join(TIMES)}")
    return ((time_ns, endpoint, data) for time_ns, endpoint, data, _ in aged(log, by, remap))


def aged(log: LogReader, by: str, remap: Mapping[str, str]) -> Iterator[Aged]:
    """Give the same, for those who can publish what messages come from, too."""
    return _named(timed(log, by), remap)


def timed(log: LogReader, by: str) -> Iterator[tuple[int, Message]]:
    """Give messages with the time that counts, in its order."""
    return _published(log) if by == "publish_time" else ((message.log_time, message) for message in log)


def new_name(endpoint: str, remap: Mapping[str, str]) -> str | None:
    """Return where an endpoint of a log is played; None: nowhere, as its name cannot be one here.

    Raises
    ------
    EndpointNameError : the name that it was given cannot be one.
    """
    if endpoint in remap:
        return naming.endpoint_name(remap[endpoint])
    try:
        return naming.endpoint_name(endpoint)
    except EndpointNameError:
        return None


def _named(ordered: Iterator[tuple[int, Message]], remap: Mapping[str, str]) -> Iterator[Aged]:
    names: dict[str, str | None] = {}
    for time_ns, message in ordered:
        if message.endpoint not in names:
            names[message.endpoint] = new_name(message.endpoint, remap)
        name = names[message.endpoint]
        if name is not None:
            origin = message.origin_time
            yield time_ns, name, message.data, message.publish_time - origin if origin else None


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


def with_ticks(messages: Iterator[Aged], endpoint: str, rate_hz: float, begin_ns: int) -> Iterator[Aged]:
    """Put the log's time between the messages: u64 nanoseconds, little endian, at a steady rate of log time.

    Being of the log's time and not of ours, they are the same each time; and each stands before what happens then.
    """
    count = 0
    for message in messages:
        while (time_ns := begin_ns + round(count * NS_PER_S / rate_hz)) <= message[0]:
            yield time_ns, endpoint, struct.pack("<Q", time_ns), None
            count += 1
        yield message

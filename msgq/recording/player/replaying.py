"""Programs on a log, in virtual time: as fast as they go, and with the same outputs each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgq
from msgq.errors import RecordingError
from msgq.recording.format import conventions
from msgq.recording.format.new_log import new_log
from msgq.recording.player.outlets import RING_BYTES
from msgq.recording.player.schedule import new_name, played
from msgq.recording.reader.reader import LogReader
from msgq.simulation import Sent, Simulation


def replay(
    log: LogReader,
    *programs: Callable[[], Any],
    seed: int = 0,
    by: str = "publish_time",
    remap: Mapping[str, str] = MappingProxyType({}),
) -> list[Sent]:
    """Run programs in a simulation into which a log is played, until nothing can happen any more.

    Parameters
    ----------
    log : with the endpoints and the time that are wanted: what the programs publish themselves is not to be played.
    programs : what `Simulation.add` takes: ordinary code, or generator functions, that make their sockets by
        ``msgq.sub_sock``, ``msgq.SubSocket`` and so on. `time` gives them the log's time.
    seed : decides the order of what happens at the same time.
    by, remap : as of `played`.

    Returns
    -------
    What the programs sent: time_ns, node, endpoint, data. Every call gives the same.

    Raises
    ------
    RecordingError : the log has no message of what was chosen.
    What a program raises, with a note that names it.
    """
    messages = played(log, by, remap)
    first = next(messages, None)
    if first is None:
        raise RecordingError("there is nothing to play: the log has no message of what was chosen")
    with Simulation(seed) as sim, sim.clock.patched():
        sim.clock.now_ns = first[0]  # programs that look at the time begin when the log does
        for info in log.endpoints.values():
            needed = 3 * (info.largest + 64)
            name = new_name(info.endpoint, remap)
            if name is not None and needed > RING_BYTES:  # the first who connects decides the size of a ring
                msgq.pub_sock(name, needed).close()
        for program in programs:
            sim.add(program)
        sim.play(chain([first], messages))
        sim.run()
        return [message for message in sim.sent if message.node != "play"]


def write_sent(sent: Iterable[Sent], path: Path) -> None:
    """Write what programs sent as a log, to compare later runs with.

    Raises
    ------
    RecordingError : the file exists, or cannot be written.
    """
    channels: dict[str, int] = {}
    with new_log(path) as writer:
        for message in sent:
            if message.endpoint not in channels:
                channels[message.endpoint] = writer.new_channel(message.endpoint, None, 0, conventions.RECEIVED)
            writer.add(channels[message.endpoint], 0, message.time_ns, message.time_ns, message.data)

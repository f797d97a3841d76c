"""Programs on a log, in virtual time: as fast as they go, and with the same outputs each time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgq
from msgq import queue_events
from msgq.errors import RecordingError
from msgq.kinds import QUEUE, RECORDS, TOPIC
from msgq.outlets import UnplayableError, Wanted
from msgq.outlets.queues import sent_event
from msgq.outlets.topics import RING_BYTES, ring_bytes
from msgq.recording.format import conventions
from msgq.recording.format.new_log import new_log
from msgq.recording.player.plan import plan
from msgq.recording.player.schedule import latched, played
from msgq.recording.reader.reader import LogReader
from msgq.schema import Schema
from msgq.simulation import Faults, Sent, Simulation
from msgq.source import Source

_log = logging.getLogger(__name__)


def replay(
    log: LogReader,
    *programs: Callable[[], Any],
    seed: int = 0,
    by: str = "publish_time",
    remap: Mapping[str, str] = MappingProxyType({}),
    faults: Faults | None = None,
) -> list[Sent]:
    """Run programs in a simulation into which a log is played, until nothing can happen any more.

    Channels, vectors, boards and queues of the log are there, as they were made, before the programs begin; vectors
    and boards have what was written to them before the log's first message that was chosen. What of the log cannot be
    played is told by the logger of this module, as a warning.

    Parameters
    ----------
    log : with the endpoints and the time that are wanted: what the programs publish themselves is not to be played.
    programs : what `Simulation.add` takes: ordinary code, or generator functions, that make their sockets by
        ``msgq.sub_sock``, ``msgq.SubSocket`` and so on. `time` gives them the log's time.
    seed : decides the order of what happens at the same time, and the faults.
    by, remap : as of `played`.
    faults : what goes wrong by chance; None: nothing.

    Returns
    -------
    What the programs sent; see `Sent`. Every call gives the same.

    Raises
    ------
    RecordingError : the log has no message of what was chosen.
    What a program raises, with a note that names it.
    """
    messages = played(log, by, remap)
    first = next(messages, None)
    if first is None:
        raise RecordingError("there is nothing to play: the log has no message of what was chosen")
    with Simulation(seed, faults) as sim, sim.clock.patched():
        sim.clock.now_ns = first.time_ns  # programs that look at the time begin when the log does
        before = log.history(RECORDS.name).between(None, log.start_time)
        wanted = _prepared(sim, log, before, remap)
        state = [message._replace(time_ns=first.time_ns) for message in latched(before, remap)]
        for program in programs:
            sim.add(program)
        sim.play(message for message in chain(state, [first], messages) if message.endpoint in wanted)
        sim.run()
        return [message for message in sim.sent if message.node != "play"]


def _prepared(sim: Simulation, log: LogReader, before: LogReader, remap: Mapping[str, str]) -> dict[str, Wanted]:
    """Make what programs may open without saying how; return what can be played."""
    wanted, skipped = plan(log, before, remap)
    playable = {}
    for name, one in wanted.items():
        try:
            if one.kind != TOPIC.name:
                sim.prepare(one._replace(publishers=(), keys=()))  # these come with their first messages
            elif (needed := ring_bytes(one.largest)) > RING_BYTES:  # who connects first decides how large a ring is
                msgq.pub_sock(name, needed).close()
            playable[name] = one
        except UnplayableError as error:
            skipped[name] = str(error)
    for name, why in skipped.items():
        _log.warning("%r is not played: %s", name, why)
    return playable


def write_sent(sent: Iterable[Sent], path: Path) -> None:
    """Write what programs sent as a log, to compare later runs with, or to play.

    Raises
    ------
    RecordingError : the file exists, or cannot be written.
    """
    channels: dict[tuple[str, Source, Schema | None], int] = {}
    queued: dict[str, int] = {}
    with new_log(path) as writer:
        for message in sent:
            data, schema = message.data, message.schema
            if message.source.kind == QUEUE.name:
                queued[message.endpoint] = number = queued.get(message.endpoint, 0) + 1
                data = sent_event(data, message.priority, number, message.time_ns)
                schema = queue_events.SCHEMA
            of = message.endpoint, message.source, schema
            if of not in channels:
                source = message.source
                channels[of] = writer.new_channel(message.endpoint, schema, 0, conventions.RECEIVED, source=source)
            writer.add(channels[of], 0, message.time_ns, message.time_ns, data)

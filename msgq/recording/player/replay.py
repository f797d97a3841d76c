"""Replay of a log into programs in virtual time, as fast as possible and with the same outputs each time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgq.common.message_source import MessageSource
from msgq.common.schema import Schema
from msgq.errors import RecordingError
from msgq.kinds import get_kind
from msgq.kinds.playback import EndpointSpec
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.log_writer import Writer
from msgq.recording.player.remapping import NameMapping
from msgq.recording.player.timed_messages import PlaybackSchedule, playback_messages
from msgq.simulation import Faults, SentMessage, Simulation

_logger = logging.getLogger(__name__)


def replay(
    log: LogReader,
    *programs: Callable[[], Any],
    seed: int = 0,
    time_source: str = "publish_time",
    remap: NameMapping = MappingProxyType({}),
    faults: Faults | None = None,
    idle_timeout: float = 10.0,
    max_runtime: float = 60.0,
) -> list[SentMessage]:
    """Run programs in a simulation, and play a log into it. Return the messages that the programs sent.

    Recorded channels, vectors, boards and queues exist before the programs start. Vectors and boards have the state of
    the log before its first selected message. The logger of this module warns about messages that cannot be played.

    Args:
        log: log with the selected endpoints and times. Exclude the outputs of the programs.
        programs: functions as in `Simulation.add`: ordinary code, or generator functions. The programs create sockets
            with ``msgq.sub_sock``, ``msgq.SubSocket`` and so on. `time` returns the log's time.
        seed: integer that decides the order of simultaneous events, and the faults.
        time_source: as in `playback_messages`.
        remap: as in `playback_messages`.
        faults: probabilities of random faults; None: no faults.
        idle_timeout: seconds of virtual time. The run ends when the log is played and no program has sent a message for
            this time. The run also ends when no event is left.
        max_runtime: seconds of virtual time after the log's last message. The run then ends with a warning, even if
            programs still send.

    Returns:
        The sent messages; see `SentMessage`. The same arguments give the same messages.

    Raises:
        RecordingError: the selection of the log has no messages.
        Exception: exceptions of a program pass through, with a note that names the program.
    """
    return Replay(log, time_source, remap).run_programs(
        *programs, seed=seed, faults=faults, idle_timeout=idle_timeout, max_runtime=max_runtime
    )


class Replay:
    """A log for programs in virtual time, indexed once for any number of runs.

    Attributes:
        endpoints: names of the played endpoints, including those that cannot be played.
    """

    def __init__(self, log: LogReader, time_source: str, remap: NameMapping) -> None:
        """Index the log; see `replay`."""
        first = next(playback_messages(log, time_source, remap), None)
        if first is None:
            raise RecordingError("nothing to play: the recording has no message of the selected endpoints and times")
        self._begin_ns, begin_ns = first.time_ns, log.start_time or 0
        self._schedule = PlaybackSchedule(log, begin_ns, time_source, remap)
        self._state = [message._replace(time_ns=first.time_ns) for message in self._schedule.find_state(begin_ns)]
        indexed = self._schedule.plan.log_index.endpoints
        self.endpoints = {self._schedule.names.find_new_name(old, info.kind) or old for old, info in indexed.items()}

    def run_programs(
        self, *programs: Callable[[], Any], seed: int, faults: Faults | None, idle_timeout: float, max_runtime: float
    ) -> list[SentMessage]:
        """Run programs once; see `replay`."""
        plan = self._schedule.plan
        with Simulation(seed, faults) as sim, sim.clock.patch_time():
            sim.clock.now_ns = self._begin_ns  # programs that read the time begin when the log does
            plan.create_endpoints(partial(_create_endpoint, sim))
            for program in programs:
                sim.add(program)
            state = (message for message in self._state if message.endpoint in plan.endpoint_specs)
            sim.play(chain(state, self._schedule.iter_messages()))
            if not sim.run_until_idle(idle_timeout, max_runtime):
                _logger.warning(
                    "the run ended %g s after the last recorded message, although programs were still sending",
                    max_runtime,
                )
            for name, reason in plan.skip_reasons.items():
                _logger.warning("endpoint %r is not played: %s", name, reason)
            return [message for message in sim.sent_messages if message.node != "play"]


def _create_endpoint(sim: Simulation, spec: EndpointSpec) -> None:
    """Create a recorded endpoint in the simulation."""
    if not get_kind(spec.kind).playback.create_endpoint(spec):
        sim.prepare(spec._replace(publishers=(), keys=()))  # these come with their first messages


def write_sent_messages(sent: Iterable[SentMessage], path: Path) -> None:
    """Write the sent messages of a run as a log, for comparison or playback.

    Raises:
        RecordingError: the file exists, or cannot be written.
    """
    channels: dict[tuple[str, MessageSource, Schema | None], int] = {}
    numbers: Counter[str] = Counter()
    with Writer(path) as writer:
        for message in sent:
            numbers[message.endpoint] += 1
            encoded = get_kind(message.source.kind).playback.encode_sent(
                message.data, message.priority, numbers[message.endpoint], message.time_ns
            )
            data, schema = encoded or (message.data, message.schema)
            channel_key = message.endpoint, message.source, schema
            if channel_key not in channels:
                metadata = metadata_keys.build_channel_metadata(
                    0, metadata_keys.RECORDER_SEQUENCE, source=message.source
                )
                channels[channel_key] = writer.channel(message.endpoint, schema, metadata=metadata)
            writer.write(channels[channel_key], data, message.time_ns, sequence=0)

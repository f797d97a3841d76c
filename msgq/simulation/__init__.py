"""Simulation of several nodes in one process and in virtual time, ordered by a seed (docs/guides/simulation.md)."""

from msgq.common.message_source import MessageSource
from msgq.kinds.playback import PlaybackMessage
from msgq.kinds.simulation import SentMessage
from msgq.simulation.comparison import TraceComparison
from msgq.simulation.explore import Exploration, explore
from msgq.simulation.faults import Fault, Faults
from msgq.simulation.simulation import Simulation
from msgq.simulation.trace import SimulationEvent, Trace

__all__ = [
    "Exploration",
    "Fault",
    "Faults",
    "MessageSource",
    "PlaybackMessage",
    "SentMessage",
    "Simulation",
    "SimulationEvent",
    "Trace",
    "TraceComparison",
    "explore",
]

"""Several nodes on one bus inside a process, in virtual time, in an order that a seed decides (docs/simulation.md)."""

from msgq.outlets import Played
from msgq.simulation.explore import Exploration, explore
from msgq.simulation.faults import Fault, Faults
from msgq.simulation.sending import SentMessage
from msgq.simulation.simulation import Simulation
from msgq.source import Source

__all__ = ["Exploration", "Fault", "Faults", "Played", "SentMessage", "Simulation", "Source", "explore"]

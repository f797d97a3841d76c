"""Several nodes on one bus inside a process, in virtual time, in an order that a seed decides (docs/simulation.md)."""

from msgq.simulation.engine import Sent
from msgq.simulation.explore import Exploration, explore
from msgq.simulation.faults import Fault, Faults
from msgq.simulation.simulation import Simulation

__all__ = ["Exploration", "Fault", "Faults", "Sent", "Simulation", "explore"]

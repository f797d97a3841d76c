"""Running schedules: until one violates a property, or all have run."""

from dataclasses import dataclass
from random import Random
from typing import Any

from .oracle import Violation
from .protocols import BY_SCENARIO


@dataclass(frozen=True)
class Finding:
    """A schedule that violates a property."""

    scenario: str
    seed: int
    broken: str  # a key of PROPERTIES
    text: str
    trace: tuple[str, ...]  # empty unless asked for


def run_schedule(scenario: str, seed: int, rules: Any = None, traced: bool = False) -> Finding | None:
    """Run one schedule; the same seed gives the same one. `rules`: None for the protocol as it is."""
    protocol = BY_SCENARIO[scenario]
    model = protocol.scenarios[scenario](Random(seed), rules or protocol.rules, traced)
    try:
        model.run()
    except Violation as violation:
        return Finding(scenario, seed, violation.broken, str(violation), tuple(model.schedule.trace or ()))
    return None


def search(scenario: str, schedules: int, seed: int = 0, rules: Any = None) -> Finding | None:
    """Run so many schedules, from `seed` on, until one violates a property."""
    for each in range(seed, seed + schedules):
        if finding := run_schedule(scenario, each, rules):
            return finding
    return None

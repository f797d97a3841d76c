"""Running schedules: until one violates a property, or all have run."""

from dataclasses import dataclass
from random import Random
from typing import Any

from .protocols import BY_SCENARIO
from .truth import Violation


@dataclass(frozen=True)
class Found:
    """A schedule that violates a property."""

    scenario: str
    seed: int
    what: str  # a key of PROPERTIES
    text: str
    trace: tuple[str, ...]  # empty unless asked for


def run_schedule(scenario: str, seed: int, rules: Any = None, traced: bool = False) -> Found | None:
    """Run one schedule; the same seed gives the same one. `rules`: None for the protocol as it is."""
    modelled = BY_SCENARIO[scenario]
    world = modelled.scenarios[scenario](Random(seed), rules or modelled.rules, traced)
    try:
        world.run()
    except Violation as violation:
        return Found(scenario, seed, violation.what, str(violation), tuple(world.schedule.trace or ()))
    return None


def search(scenario: str, schedules: int, seed: int = 0, rules: Any = None) -> Found | None:
    """Run so many schedules, from `seed` on, until one violates a property."""
    for each in range(seed, seed + schedules):
        if found := run_schedule(scenario, each, rules):
            return found
    return None

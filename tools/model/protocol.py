"""What the tools need to know of a protocol: its scenarios, and what can be taken away from it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from .machine import Machine
from .scheduler import Schedule


class Model:
    """One schedule of one scenario, ready to run. `machine`: with the words of the scenario."""

    def __init__(self, rng: Random, machine: Machine, traced: bool) -> None:
        self.rng = rng
        self.machine = machine
        self.schedule = Schedule(rng, machine, traced)

    def below(self, limit: int) -> int:
        """One of 0 .. limit - 1."""
        return int(self.rng.random() * limit)

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.rng.random() < probability

    def run(self) -> None:
        """Raises Violation."""
        self.schedule.run()


Scenario = Callable[[Random, Any, bool], Model]  # function of a seed's numbers, the rules, and whether to keep a trace


@dataclass(frozen=True)
class Mutation:
    """A protocol with one missing step, the scenario that finds the error, and a description."""

    name: str
    scenario: str
    rules: Any
    omission: str


def mutations_of(rules: Any) -> Callable[..., Mutation]:
    """Return what makes mutations of a protocol: by name, scenario, text, and the rules that change."""

    def mutation(name: str, scenario: str, omission: str, **changes: Any) -> Mutation:
        return Mutation(name, scenario, replace(rules, **changes), omission)

    return mutation


class ProtocolModels:
    """A protocol that is modelled.

    Attributes:
        rules: a dataclass of decisions that a mutation can take back; the defaults are the protocol.
        scenarios: scenarios by name, which no other protocol uses.
        mutations: mutations by name, which no other protocol uses.
    """

    def __init__(self, name: str, rules: Any, scenarios: Iterable[Scenario], mutations: Iterable[Mutation]) -> None:
        self.name, self.rules = name, rules
        self.scenarios = {scenario.__name__: scenario for scenario in scenarios}
        self.mutations = {mutation.name: mutation for mutation in mutations}

"""What the tools need to know of a protocol: its scenarios, and what can be taken away from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from .scheduler import Schedule


class Model(Protocol):
    """One schedule of one scenario, ready to run."""

    @property
    def schedule(self) -> Schedule:
        """Who runs when."""

    def run(self) -> None:
        """Raises Violation."""


Scenario = Callable[[Random, Any, bool], Model]  # of a seed's numbers, the rules, and whether to keep a trace


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


@dataclass(frozen=True)
class ProtocolModels:
    """A protocol that is modelled.

    Attributes
    ----------
    rules : a dataclass of decisions that a mutation can take back; the defaults are the protocol.
    scenarios, mutations : by name, which no other protocol uses.
    """

    name: str
    rules: Any
    scenarios: dict[str, Scenario]
    mutations: dict[str, Mutation]

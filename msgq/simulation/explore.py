"""Every order that a short scenario can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgq.errors import InvalidValueError
from msgq.simulation.faults import Fault
from msgq.simulation.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Exploration:
    """What `explore` found.

    Attributes
    ----------
    orders : how many were tried.
    complete : these are all there are, and none failed.
    choices : those of the first order that failed: ``Simulation(choices=...)`` runs it again. None when none failed.
    error : what it raised.
    """

    orders: int
    complete: bool
    choices: tuple[int, ...] | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        if self.error is not None:
            error = f"{type(self.error).__name__}: {self.error}"
            again = f"Simulation(choices={list(self.choices or ())})"
            return f"order {self.orders} failed: {error}; the same again: {again}"
        return f"{self.orders} orders, {'all there are' if self.complete else 'not all there are'}; none failed"


def explore(
    scenario: Callable[[Simulation], object], limit: int = 10_000, *, fault_schedule: Sequence[Fault] = ()
) -> Exploration:
    """Run a scenario once for each order in which its messages can be delivered and its nodes can run.

    Parameters
    ----------
    scenario : gets an active simulation, adds nodes, runs it, and checks what came of it: an exception is a failure.
        It must make everything anew, and depend on nothing but the simulation.
    limit : stop after so many orders.
    fault_schedule : faults that are part of the scenario.

    Returns
    -------
    What was found, up to the first failure.

    Raises
    ------
    InvalidValueError : the scenario does something else when it is run again with the same choices.
    """
    choices: tuple[int, ...] = ()
    before: list[tuple[int, int]] = []
    for count in range(1, limit + 1):
        simulation = Simulation(choices=choices, fault_schedule=fault_schedule)
        failure = _run_scenario_once(scenario, simulation)
        decisions = simulation.decisions
        if [n for _, n in decisions[: len(choices)]] != [n for _, n in before[: len(choices)]]:
            text = (
                f"scenario is not deterministic: the decisions were {before[: len(choices)]}, and now are {decisions}"
            )
            raise InvalidValueError(text) from failure
        if failure is not None:
            return Exploration(count, False, tuple(choice for choice, _ in decisions), failure)
        before = decisions
        choices = _find_next_choices(decisions)
        if not choices:
            return Exploration(count, True)
    return Exploration(limit, False)


def _run_scenario_once(scenario: Callable[[Simulation], object], simulation: Simulation) -> Exception | None:
    try:
        with simulation:
            scenario(simulation)
    except Exception as error:
        return error
    return None


def _find_next_choices(decisions: list[tuple[int, int]]) -> tuple[int, ...]:
    """Return the choices of the next order, depth first: the last decision that has another possibility takes it."""
    for place in range(len(decisions) - 1, -1, -1):
        choice, n = decisions[place]
        if choice + 1 < n:
            return (*(earlier for earlier, _ in decisions[:place]), choice + 1)
    return ()

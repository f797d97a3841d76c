"""Exploration of every order of a short scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgq.errors import InvalidValueError
from msgq.simulation.faults import Fault
from msgq.simulation.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Exploration:
    """Result of `explore`.

    Attributes
    ----------
    orders : number of orders that were run.
    complete : True if all orders were run, and none failed.
    choices : choices of the first order that failed; None: none failed. ``Simulation(choices=...)`` repeats this order.
    error : exception of the first order that failed; None: none failed.
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
    """Run a scenario once for each order of its deliveries and its nodes, up to the first failure.

    Parameters
    ----------
    scenario : function that gets an active simulation, adds nodes, runs the simulation, and checks the results. An
        exception is a failure. The function must create all objects again, and depend on nothing but the simulation.
    limit : maximum number of orders.
    fault_schedule : scheduled faults of the scenario.

    Returns
    -------
    The result up to the first failure.

    Raises
    ------
    InvalidValueError : the scenario behaves differently when it is run again with the same choices.
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
    """Return the choices of the next order, depth first: the last decision with another possibility changes."""
    for place in range(len(decisions) - 1, -1, -1):
        choice, n = decisions[place]
        if choice + 1 < n:
            return (*(earlier for earlier, _ in decisions[:place]), choice + 1)
    return ()

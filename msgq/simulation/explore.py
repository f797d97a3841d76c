"""Exploration of every order of a short scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from msgq.errors import InvalidValueError, SimulationFailedError
from msgq.simulation.comparison import TraceComparison
from msgq.simulation.faults import Fault
from msgq.simulation.simulation import Simulation
from msgq.simulation.trace import Trace

_ORDERS_AFTER_FAILURE_MAX = 100  # maximum number of runs in search of an order that passes


@dataclass(frozen=True, slots=True)
class Exploration:
    """Result of `explore`.

    Attributes:
        orders: number of orders that were run.
        complete: True if all orders were run, and none failed.
        choices: choices of the first order that failed; None: none failed. ``Simulation(choices=...)`` repeats this
            order.
        error: exception of the first order that failed; None: none failed.
        comparison: events of the failing order beside those of the most similar passing order; None: none failed.
    """

    orders: int
    complete: bool
    choices: tuple[int, ...] | None = None
    error: Exception | None = None
    comparison: TraceComparison | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.orders} orders, {'all there are' if self.complete else 'not all there are'}; none failed"
        error = f"{type(self.error).__name__}: {self.error}"
        replay_call = f"Simulation(choices={list(self.choices or ())})"
        return f"order {self.orders} failed: {error}; the same again: {replay_call}\n{self.comparison}"

    def check(self) -> None:
        """Raise an error unless all orders were run and passed.

        Raises:
            SimulationFailedError: an order failed, or `limit` ended the exploration. The text compares the events of
                the failing order with a passing order. The exception of the failing order is the cause.
        """
        if self.error is not None:
            raise SimulationFailedError(str(self)) from self.error
        if not self.complete:
            raise SimulationFailedError(f"{self}; give explore a larger limit, or a shorter scenario")


def explore(
    scenario: Callable[[Simulation], object], limit: int = 10_000, *, fault_schedule: Sequence[Fault] = ()
) -> Exploration:
    """Run a scenario once for each order of its deliveries and its nodes, up to the first failure.

    Args:
        scenario: function that gets an active simulation, adds nodes, runs the simulation, and checks the results. An
            exception is a failure. The function must create all objects again, and depend on nothing but the
            simulation.
        limit: maximum number of orders.
        fault_schedule: scheduled faults of the scenario.

    Returns:
        The result up to the first failure. If the first order fails, up to 100 further runs search for an order that
        passes, for the comparison. They differ from the first order in one decision, and `orders` does not count them.

    Raises:
        InvalidValueError: the scenario behaves differently when it is run again with the same choices.
    """
    choices: tuple[int, ...] = ()
    before: list[tuple[int, int]] = []
    passing: Trace | None = None
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
            # The search is depth first: of all earlier orders, the previous one has the most first choices in common.
            passing = passing or _find_passing_trace(scenario, fault_schedule, decisions)
            comparison = TraceComparison(simulation.trace, passing)
            return Exploration(count, False, tuple(choice for choice, _ in decisions), failure, comparison)
        before, passing = decisions, simulation.trace
        choices = _find_next_choices(decisions)
        if not choices:
            return Exploration(count, True)
    return Exploration(limit, False)


def _find_passing_trace(
    scenario: Callable[[Simulation], object], fault_schedule: Sequence[Fault], decisions: list[tuple[int, int]]
) -> Trace | None:
    """Run orders with one decision that differs from those of a failing order, until an order passes; None: none does.

    The last decisions come first, because these orders have the most events in common with the failing one.
    """
    orders = (
        (*(earlier for earlier, _ in decisions[:place]), other)
        for place, (choice, n) in reversed([*enumerate(decisions)])
        for other in range(n)
        if other != choice
    )
    for choices in islice(orders, _ORDERS_AFTER_FAILURE_MAX):
        simulation = Simulation(choices=choices, fault_schedule=fault_schedule)
        if _run_scenario_once(scenario, simulation) is None:
            return simulation.trace
    return None


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

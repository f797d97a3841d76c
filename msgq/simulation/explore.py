"""Exploration of every order of a short scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from msgq.errors import InvalidValueError, SimulationFailedError
from msgq.simulation.comparison import TraceComparison
from msgq.simulation.faults import Fault
from msgq.simulation.simulation import Simulation
from msgq.simulation.trace import Trace

_ORDERS_AFTER_FAILURE_MAX = 100  # tried in search of an order that passes


@dataclass(frozen=True, slots=True)
class Exploration:
    """Result of `explore`.

    Attributes
    ----------
    orders : number of orders that were run.
    complete : True if all orders were run, and none failed.
    choices : choices of the first order that failed; None: none failed. ``Simulation(choices=...)`` repeats this order.
    error : exception of the first order that failed; None: none failed.
    comparison : events of the failing order beside those of the most similar passing order; None: none failed.
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
        again = f"Simulation(choices={list(self.choices or ())})"
        return f"order {self.orders} failed: {error}; the same again: {again}\n{self.comparison}"

    def check(self) -> None:
        """Raise an error unless all orders were run and passed.

        Raises
        ------
        SimulationFailedError : an order failed, or `limit` ended the exploration. The text compares the events of the
            failing order with a passing order. The exception of the failing order is the cause.
        """
        if self.error is not None:
            raise SimulationFailedError(str(self)) from self.error
        if not self.complete:
            raise SimulationFailedError(f"{self}; give explore a larger limit, or a shorter scenario")


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
    passing: Trace | None = None
    runs = _iter_runs(scenario, fault_schedule)
    for count, (simulation, failure, is_last) in enumerate(islice(runs, limit), 1):
        if failure is not None:
            # The runs go depth first: no earlier run has more choices in common with this one than the previous run.
            comparison = TraceComparison(simulation.trace, passing or _find_passing_trace(runs))
            return Exploration(count, False, tuple(choice for choice, _ in simulation.decisions), failure, comparison)
        if is_last:
            return Exploration(count, True)
        passing = simulation.trace
    return Exploration(limit, False)


def _find_passing_trace(runs: Iterable[_OrderRun]) -> Trace | None:
    """Return the events of the next run that passes; None: no run passes soon."""
    later = islice(runs, _ORDERS_AFTER_FAILURE_MAX)
    return next((run.simulation.trace for run in later if run.failure is None), None)


class _OrderRun(NamedTuple):
    """A run of one order. `is_last`: True if no other order is left."""

    simulation: Simulation
    failure: Exception | None
    is_last: bool


def _iter_runs(scenario: Callable[[Simulation], object], fault_schedule: Sequence[Fault]) -> Iterator[_OrderRun]:
    """Run a scenario once for each order.

    Raises
    ------
    InvalidValueError : see `explore`.
    """
    choices: tuple[int, ...] = ()
    before: list[tuple[int, int]] = []
    while True:
        simulation = Simulation(choices=choices, fault_schedule=fault_schedule)
        failure = _run_scenario_once(scenario, simulation)
        decisions = simulation.decisions
        if [n for _, n in decisions[: len(choices)]] != [n for _, n in before[: len(choices)]]:
            text = (
                f"scenario is not deterministic: the decisions were {before[: len(choices)]}, and now are {decisions}"
            )
            raise InvalidValueError(text) from failure
        before, choices = decisions, _find_next_choices(decisions)
        yield _OrderRun(simulation, failure, not choices)
        if not choices:
            return


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

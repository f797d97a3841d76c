"""The pytest fixture `msgq_sim`: a fresh simulation for each test, with as many seeds as wanted.

The report of a failed test has a section with the events of the simulation, beside those of a seed that passed.

It stands beside the package so that pytest, which loads it in every session, does not import msgq before a test asks
for it: that would cost each session of any project its time, and tools that measure coverage start after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from msgq.simulation import Simulation, Trace

_PASSING_TRACES_MAX = 100  # newest seeds of a test with which a failing seed is compared
_MARKER = (
    "msgq_sim(seeds=1, faults=None, fault_schedule=()): seeds to run the test with (--msgq-seeds goes before), and the "
    "faults and the fault schedule of the fixture's Simulation"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("msgq", "simulations of msgq")
    group.addoption("--msgq-seeds", type=int, metavar="N", help="run tests with msgq_sim with the seeds 0 to N - 1")
    group.addoption("--msgq-seed", type=int, metavar="SEED", help="run tests with msgq_sim with this seed only")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and start to keep the seeds that pass."""
    config.addinivalue_line("markers", _MARKER)
    config.pluginmanager.register(_EventReporter())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses the fixture once for each seed."""
    if "msgq_sim" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("msgq_sim")
    one, several = metafunc.config.getoption("--msgq-seed"), metafunc.config.getoption("--msgq-seeds")
    if several is None:
        several = mark.kwargs.get("seeds", 1) if mark else 1
    if several < 1:
        raise pytest.UsageError(f"{several} seeds would run no test; give at least 1")
    seeds = range(several) if one is None else [one]
    metafunc.parametrize("msgq_sim", seeds, indirect=True, ids=[f"seed{seed}" for seed in seeds])


@pytest.fixture
def msgq_sim(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """An active `msgq.simulation.Simulation` of this test alone."""
    from msgq.simulation import Simulation

    mark = request.node.get_closest_marker("msgq_sim")
    options = {name: value for name, value in (mark.kwargs if mark else {}).items() if name != "seeds"}
    # pytest shows what is printed here if the test fails, and only then.
    print(f"msgq_sim has seed {request.param}; again: pytest '{request.node.nodeid}' --msgq-seed {request.param}")
    with Simulation(seed=request.param, **options) as simulation:
        yield simulation


class _EventReporter:
    """Adds the events of a failed simulation to the report of its test."""

    def __init__(self) -> None:
        self._function: object = None  # whose seeds run now
        self._passing: deque[Trace] = deque(maxlen=_PASSING_TRACES_MAX)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Compare the events of a failed test with the most similar seed that passed."""
        report = yield
        simulation: Simulation | None = getattr(item, "funcargs", {}).get("msgq_sim")
        if simulation is None or call.when != "call":
            return report
        function = getattr(item, "originalname", None), item.parent
        if function != self._function:
            self._function = function
            self._passing.clear()
        if report.passed:
            self._passing.append(simulation.trace)
        elif report.failed:
            report.sections.append(("msgq simulation", _describe_events(simulation.trace, self._passing)))
        return report


def _describe_events(failing: Trace, passing: Iterable[Trace]) -> str:
    from msgq.simulation import TraceComparison

    return str(TraceComparison(failing, max(passing, key=failing.count_common_events, default=None)))

"""A pytest plugin that reports where a run spent its time, and lists unmarked tests that are too slow for `make test`.

The report has wall time and processor time by part of the tests, and the slowest tests. The processor time of a test
includes the child processes that the test has waited for. Two more rows make the sum complete: the start of all
processes until their first test, which is mostly imports and collection, and the rest, which is mostly the
distribution and the reports of tests. A slow test does not fail, because both times depend on the machine and its load.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple

import pytest

from tests import tiers

LIMIT_SECONDS = 2.0  # processor time for the call of a test that is in `make test`
SLOWEST = 10
PROPERTY = "run times"
_clocks = pytest.StashKey[dict[str, "Spent"]]()


class Spent(NamedTuple):
    """Seconds of wall time and of processor time."""

    wall: float
    processor: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.wall - other.wall, self.processor - other.processor)

    @classmethod
    def now(cls) -> Spent:
        """Return the readings of both clocks. Their differences count."""
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages))


def _sum(spents: Iterable[Spent]) -> Spent:
    walls, processors = zip(*spents, strict=True)
    return Spent(sum(walls), sum(processors))


def _print_row(reporter: pytest.TerminalReporter, spent: Spent, text: str) -> None:
    reporter.line(f"{spent.processor:7.1f} s of processor time, {spent.wall:7.1f} s: {text}")


class RunTimes:
    """Measures in the process that runs a test, and adds up in the process that prints."""

    def __init__(self) -> None:
        self.begun_s = time.perf_counter()
        self.starts: list[Spent] = []
        self.tests: dict[str, Spent] = {}
        self.too_slow: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        self.prints = not hasattr(config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        now = Spent.now()  # its processor time counts from the start of the process
        start = Spent(now.wall - self.begun_s, now.processor)
        self.starts.append(start)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[PROPERTY] = [*start]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Note the start of a process of pytest-xdist; a crashed process has sent none."""
        if start := getattr(node, "workeroutput", {}).get(PROPERTY):
            self.starts.append(Spent(*start))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        item.stash[_clocks] = {"setup": Spent.now()}
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        before = Spent.now()
        try:
            yield
        finally:
            item.stash[_clocks]["call"] = Spent.now() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        if nextitem is None:  # the session's fixtures, such as Spark, end after this
            item.stash[_clocks]["end"] = Spent.now()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            clocks = item.stash[_clocks]
            del item.stash[_clocks]
            spent = clocks.get("end", Spent.now()) - clocks["setup"]
            in_call = clocks.get("call", Spent(0, 0)).processor
            limited = tiers.is_fast_run(item.config) and not any(map(item.get_closest_marker, tiers.MARKS))
            report.user_properties.append((PROPERTY, [[*spent], in_call, limited]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if self.prints and report.when == "teardown" and PROPERTY in properties:
            spent, in_call, limited = properties[PROPERTY]
            self.tests[report.nodeid] = Spent(*spent)
            if limited and in_call > LIMIT_SECONDS:
                self.too_slow.append(f"{report.nodeid}: {in_call:.1f} s of processor time")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.tests) <= SLOWEST:
            return
        terminalreporter.section("time by part")
        start = _sum(self.starts)
        _print_row(terminalreporter, start, f"start of {len(self.starts)} processes, with imports and collection")
        rest = Spent.now() - Spent(self.begun_s, 0) - start - _sum(self.tests.values())
        _print_row(terminalreporter, Spent(0, rest.processor), "the rest, such as distribution and reports")
        parts: dict[str, list[Spent]] = defaultdict(list)
        for test, spent in self.tests.items():
            parts["/".join(test.split("::")[0].split("/")[:2])].append(spent)
        for part, spents in sorted(parts.items(), key=lambda part: -sum(spent.processor for spent in part[1])):
            _print_row(terminalreporter, _sum(spents), f"{part}, {len(spents)} tests")
        terminalreporter.section(f"{SLOWEST} slowest tests")
        for test, spent in sorted(self.tests.items(), key=lambda test: -test[1].wall)[:SLOWEST]:
            _print_row(terminalreporter, spent, test)
        if self.too_slow:
            terminalreporter.section(f"mark these `ci` or `nightly`, or make them faster: more than {LIMIT_SECONDS} s")
            for line in self.too_slow:
                terminalreporter.line(line, red=True)

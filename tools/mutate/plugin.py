"""A pytest plugin for the runs of `tools.mutate`: it records which tests execute which lines, or runs chosen tests.

The variable MUTATE_ORDER names a JSON file: ``{"measure": FILES, "output": FOLDER}`` or
``{"run": TESTS, "output": FILE}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests, or run the mutants, according to the order."""
    order = json.loads(Path(os.environ["MUTATE_ORDER"]).read_text())
    output = Path(order["output"])
    config.pluginmanager.register(
        _Reach(order["measure"], output) if "measure" in order else _Run(order["run"], output)
    )


def _without_group(nodeid: str) -> str:
    """Return the id without the group that the processes of pytest-xdist append; the tests of a mutant run without."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group and "::" in name else nodeid


class _Reach:
    """Records the outcome of each test and the lines that it executes, in each process that runs tests."""

    def __init__(self, files: list[str], folder: Path) -> None:
        self._files, self._folder = files, folder
        self._coverage: coverage.Coverage | None = None
        self._tests: dict[str, tuple[bool, float]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self._coverage is None:
            self._coverage = coverage.Coverage(data_file=None, include=self._files, config_file=False, messages=False)
            self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
            self._coverage.start()
        self._coverage.switch_context(_without_group(item.nodeid))
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = _without_group(report.nodeid)
        passed, seconds = self._tests.get(test, (True, 0.0))
        self._tests[test] = passed and report.passed, seconds + report.duration

    def pytest_sessionfinish(self) -> None:
        if self._coverage is None:  # this process only distributes the tests
            return
        self._coverage.stop()
        data = self._coverage.get_data()
        reached = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
        data.close(force=True)
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps({"tests": self._tests, "reached": reached}))


class _Run:
    """Runs the chosen tests in their order, and writes each result at once, because a mutant may end the process."""

    def __init__(self, tests: list[str], file: Path) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self._file = file

    def _note(self, **fields: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def pytest_sessionstart(self) -> None:
        self._note(folder=os.environ.get("TMPDIR", ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(failed=report.nodeid)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._places]
        items[:] = sorted(chosen, key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(failed=report.nodeid)
        elif report.when == "call" and report.passed:
            self._note(passed=report.nodeid)

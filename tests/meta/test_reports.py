"""The number of processes of a run, and the reports that pass from process to process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests import reports


def succeed() -> None:
    pass


def fail() -> None:
    raise ValueError("wrong: \N{SNOWMAN} \udc80")


def skip() -> None:
    pytest.skip("why")


def expect_failure() -> None:
    pytest.xfail("why")


@pytest.mark.parametrize("function", [succeed, fail, skip, expect_failure])
def test_report_of_test_is_sent_as_bytes_and_arrives_unchanged(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, function: Callable[[], None]
) -> None:
    call = pytest.CallInfo.from_call(function, "call")
    report = pytestconfig.hook.pytest_runtest_makereport(item=request.node, call=call)
    report.sections.append(("Captured stdout call", "printed"))
    report.user_properties.append(("property", [[1.5, 2], None, True]))
    data = pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=report)
    assert [type(value) for value in data.values()] == [bytes]
    arrived = pytestconfig.hook.pytest_report_from_serializable(
        config=pytestconfig,
        data=data | {"worker_id": "gw0"},  # same key as in reports of pytest-xdist
    )
    assert str(arrived.longrepr) == str(report.longrepr)
    texts = {"longrepr": None, "$report_type": "TestReport"}
    assert vars(arrived) | texts == vars(report) | texts | {"worker_id": "gw0"}


@pytest.mark.parametrize("runs_for_another", [True, False])
def test_process_that_prints_no_report_keeps_none(runs_for_another: bool) -> None:
    reporter = SimpleNamespace(stats={"passed": ["a report"]})
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin={"terminalreporter": reporter}.get))
    if runs_for_another:
        config.workerinput = {}
    item: Any = SimpleNamespace(config=config)
    reports.pytest_runtest_teardown(item)
    assert reporter.stats == ({} if runs_for_another else {"passed": ["a report"]})


@pytest.mark.parametrize(("cores", "mebibytes", "processes"), [(1, 1024, 2), (2, 1024, 4), (2, 64, 3), (2, 8, 1)])
def test_number_of_processes_depends_on_cores_and_shared_memory(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, cores: int, mebibytes: int, processes: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=mebibytes << 20))
    assert pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig) == processes

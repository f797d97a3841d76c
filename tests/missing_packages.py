"""A pytest plugin for a Python for which some packages have no wheel: tests that import them are skipped.

`tools/test_with_python.sh` names such packages in the variable MSGQ_TEST_WITHOUT. Without it, each test must run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from typing import Any

import pytest

from msgq.errors import MissingLibraryError

OWN_MODULES = ("examples", "msgq", "tests", "tools", "visionipc")
MISSING_TEXT = re.compile(r"No module named '(\w+)|needs? ([\w ]+), which (?:is|are) not installed")


def is_expected() -> bool:
    """Return whether packages are missing in this run."""
    return bool(os.environ.get("MSGQ_TEST_WITHOUT"))


def find_missing_module(error: BaseException | None, text: str) -> str | None:
    """Return the name of the foreign module whose absence led to the error, if any.

    Args:
        error: error of the test.
        text: description of the error. It may quote the output of a process that needs the module.
    """
    while error is not None:
        name = error.name if isinstance(error, (ModuleNotFoundError, MissingLibraryError)) else None
        if name and not name.startswith(OWN_MODULES):
            return name
        error = error.__cause__ or error.__context__
    for found in MISSING_TEXT.finditer(text):
        for name in (found[1] or found[2]).split(" and "):
            if find_spec(name) is None:
                return name
    return None


def _skip(report: Any, error: BaseException, place: str) -> None:
    module = find_missing_module(error, report.longreprtext)
    if module is not None:
        report.outcome, report.longrepr = "skipped", (place, 0, f"Skipped: {module} is missing")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        _skip(report, report.call.excinfo.value, str(collector.path))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.failed and call.excinfo is not None:
        _skip(report, call.excinfo.value, str(item.path))
    return report

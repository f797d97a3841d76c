"""The report of run times has a row for each part of a run, also for what no test takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

CONFTEST = """
from tests.run_times import RunTimes

def pytest_configure(config):
    config.pluginmanager.register(RunTimes())
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    sum(range(100_000))
"""
ROW = re.compile(r" +([0-9.]+) s of processor time, +[0-9.]+ s: (.*)")


@pytest.mark.ci
@pytest.mark.parametrize(("options", "processes"), [((), 1), (("-n", "2"), 3)])
def test_report_of_run_times_has_rows_for_start_and_rest(
    tmp_path: Path, options: tuple[str, ...], processes: int
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {text: float(seconds) for seconds, text in ROW.findall(done.stdout.partition("slowest")[0])}
    start, rest, part = rows
    assert start == f"start of {processes} processes, with imports and collection"
    assert rest == "the rest, such as distribution and reports"
    assert part == "test_it.py, 20 tests"
    assert rows[start] > 0
    assert all(seconds >= 0 for seconds in rows.values())

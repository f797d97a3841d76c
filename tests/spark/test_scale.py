"""The simulation behind docs/internals/scaling.md goes on with the code that it calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.spark.deadline import DEADLINE
from tests.support import ROOT


@pytest.mark.nightly
def test_scale_simulation_runs_without_errors() -> None:
    command = [sys.executable, "-m", "tools.scale", "--hosts", "8", "--every", "7200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert "core hours a TB" in done.stdout
    assert not done.stderr

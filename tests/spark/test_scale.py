"""The simulation behind docs/scaling.md goes on with the code that it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.ci
def test_the_simulation_runs() -> None:
    command = [sys.executable, "-m", "tools.scale", "--hosts", "8", "--every", "7200"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True, timeout=200)
    assert "core hours a TB" in done.stdout
    assert not done.stderr

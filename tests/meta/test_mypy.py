"""All Python is clean under strict mypy, which also finds the mistakes in `typed_program.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.sources import ROOT


@pytest.mark.watchdog(300.0)
@pytest.mark.ci
def test_all_is_clean() -> None:
    """Without arguments, as `make lint` calls it: the files and options of pyproject.toml, and one cache."""
    command = [sys.executable, "-m", "mypy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

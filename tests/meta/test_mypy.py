"""The library and a typed user's program are clean under ``mypy --strict``, which also finds the user's mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

PROGRAM = Path(__file__).with_name("typed_program.py")


@pytest.mark.watchdog(300.0)
def test_library_and_user_are_clean(tmp_path):
    options = ["--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", *options, "msgq", str(PROGRAM)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

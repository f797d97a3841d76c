"""The benchmark's table of kinds: a topic, a channel, a queue and a record side by side."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_bench import LIMIT_S, PROJECT

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def test_bench_of_kinds_measures_each_endpoint_kind(tmp_path: Path) -> None:
    words = ["kinds", "--quick", "--repeats", "1", "--only", "pair", "--json", str(tmp_path / "out")]
    command = [sys.executable, "-m", "tools.bench", *words]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    data = json.loads((tmp_path / "out").read_text())
    assert set(data["rows"][0]["medians"]) >= {"msgq", "channel", "queue", "records"}
    assert data["failed"] == []

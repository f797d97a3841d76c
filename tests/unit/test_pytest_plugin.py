"""The fixture `msgq_sim`, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = """
import sys
import pytest

if "msgq" in sys.modules:
    raise RuntimeError("pytest must not import msgq before a test does")

def test_simulation_with_one_seed(msgq_sim):
    import msgq
    msgq.pub_sock("a").send(b"x")
    assert msgq_sim.sent_on("a") == [b"x"]

@pytest.mark.msgq_sim(seeds=5)
def test_simulation_with_five_seeds(msgq_sim):
    assert msgq_sim.seed != 3

@pytest.mark.msgq_sim(fault_schedule=())
def test_simulation_with_fault_schedule(msgq_sim):
    pass

def test_without_simulation():
    pass
"""


@pytest.fixture
def run(tmp_path: Path) -> object:
    (tmp_path / "test_it.py").write_text(TESTS)

    def run(*options: str) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-v", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_failing_seed_is_printed_with_command_that_repeats_it(run: Any) -> None:
    code, output = run()
    assert code == 1
    assert "7 passed, 1 failed" in output or "1 failed, 7 passed" in output
    assert output.count("again: pytest") == 1
    again = "pytest 'test_it.py::test_simulation_with_five_seeds[seed3]' --msgq-seed 3"
    assert f"msgq_sim has seed 3; again: {again}" in output
    code, output = run("test_it.py::test_simulation_with_five_seeds[seed3]", "--msgq-seed", "3")
    assert code == 1
    assert "1 failed" in output
    assert "passed" not in output


def test_seeds_option_runs_test_with_more_seeds(run: Any) -> None:
    code, output = run("--msgq-seeds", "3")
    assert code == 0
    assert "10 passed" in output


def test_seed_option_runs_test_with_single_seed(run: Any) -> None:
    code, output = run("--msgq-seed", "12345678901")
    assert code == 0
    assert "test_simulation_with_five_seeds[seed12345678901] PASSED" in output
    assert "4 passed" in output


def test_seed_count_below_one_is_refused(run: Any) -> None:
    code, output = run("--msgq-seeds", "0")
    assert code != 0
    assert "at least 1" in output

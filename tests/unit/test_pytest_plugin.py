"""The fixture `msgq_sim` and what it reports, in a pytest of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from functools import partial
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

LEDGER_TESTS = """
import msgq
import pytest
from msgq.simulation import explore

def deposit_and_withdraw(sim):
    order = []
    sim.on("deposit", order.append, name="ledger")
    sim.on("withdraw", order.append, name="cashier")
    sim.play([(1.0, "deposit", b"100"), (1.0, "withdraw", b"50")])
    sim.run()
    assert order == [b"50", b"100"]

@pytest.mark.msgq_sim(seeds=10)
def test_seeds(msgq_sim):
    deposit_and_withdraw(msgq_sim)

@pytest.mark.msgq_sim(seeds=10)
def test_other_seeds(msgq_sim):
    deposit_and_withdraw(msgq_sim)
    assert False

def test_orders():
    explore(deposit_and_withdraw).check()
"""


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-v", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def run(tmp_path: Path) -> object:
    (tmp_path / "test_it.py").write_text(TESTS)
    return partial(run_pytest, tmp_path)


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


DIFFERENCE = "1.0 s: deposit arrives at ledger before withdraw arrives at cashier"


def find_section(output: str, test: str) -> list[str]:
    """Return the lines about the simulation in the report of the first failure of a test."""
    lines = iter(output.splitlines())
    next(line for line in lines if line.startswith("_") and f" {test}" in line)
    next(line for line in lines if "- msgq simulation -" in line)
    return list(itertools.takewhile(lambda line: not line.startswith(("---", "___", "===")), lines))


def test_report_of_failed_test_compares_events(tmp_path: Path) -> None:
    (tmp_path / "test_ledger.py").write_text(LEDGER_TESTS)
    code, output = run_pytest(tmp_path)
    assert code == 1
    assert "test_seeds[seed0] PASSED" in output

    difference, titles, marked, *_ = find_section(output, "test_seeds")
    assert difference == DIFFERENCE
    assert titles.split()[0::2] == ["failing:", "passing:"]
    assert marked.startswith("> 1.0 s: deposit #1 arrives at ledger: b'100'")
    assert marked.endswith("1.0 s: withdraw #1 arrives at cashier: b'50'")

    title, *events = find_section(output, "test_other_seeds")  # no seed of this test passes
    assert title == "failing: Simulation(seed=0)"
    assert {event.split()[2] for event in events} == {"deposit", "withdraw"}

    orders = output[output.index(" test_orders ") :]
    assert f" {DIFFERENCE}" in orders
    assert "> 1.0 s: deposit #1 arrives at ledger: b'100'" in orders

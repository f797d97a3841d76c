"""Seeds are fixed or random. A test that fails with a random seed is repeated with it in later runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import FILE
from tests.support import ROOT

TESTS = """
import os
import pytest
from hypothesis import given, strategies as st

@pytest.mark.parametrize("kind", ["good", "bad"])
def test_seed_fixture_has_good_kind(seed, kind):
    assert kind == "good"

@pytest.mark.seeds(2, 4, 8)
def test_passes_with_each_seed(seed):
    pass

@pytest.mark.xdist_group("a")
@given(st.integers())
def test_hypothesis_draws_only_zero(number):
    name = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition("]")[0]
    with open(f"drawn by {name}]", "a") as file:
        print(number, file=file)
    assert number == 0

@pytest.mark.nightly
def test_nightly_fails_with_each_seed(seed):
    assert False

def test_process_exits_if_crash_is_set(seed):
    if os.environ["CRASH"] == "1":
        os._exit(1)

@pytest.mark.parametrize("seed", ["own"])
def test_own_parameter_named_seed_fails(seed):
    assert False

def test_without_seed_fails():
    assert False
"""

RECORDING_TEST = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=1000)
@given(st.integers())
def test_hypothesis_draws(number):
    with open("drawn by test", "a") as file:
        print(number, file=file)
"""


# The mark expressions of `make test` and `make ci`.
FAST = "not ci and not nightly and not style"
CI = "(ci and not nightly) or listed"


def run(folder: Path, seed: str, *options: str, crash: str = "0", tests: str = TESTS) -> dict[str, str]:
    """Run the tests in a project of their own; return the outcome of each."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers -p tests.seeds\nmarkers =\n    ci\n    nightly"
    )
    for path in folder.glob("drawn*"):
        path.unlink()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MSGQ_TEST_SEED": seed, "CRASH": crash}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        "--tb=no",
        "--show-capture=no",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    outcomes = re.findall(r"^(PASSED|FAILED) test_it.py::([^@\s]+)", done.stdout, re.MULTILINE)
    return {name: outcome for outcome, name in outcomes}


def failed_seeds(outcomes: dict[str, str]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome == "FAILED" and "seed=" in name}


def read_drawn_numbers(folder: Path) -> dict[str, str]:
    """Return the numbers that each test of Hypothesis was called with."""
    return {path.name.removeprefix("drawn by "): path.read_text() for path in folder.glob("drawn*")}


def read_listed_tests(folder: Path) -> list[str]:
    path = folder / FILE
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.removeprefix("test_it.py::") for line in lines]


FIXED = {
    "test_seed_fixture_has_good_kind[good-seed=1]",
    "test_seed_fixture_has_good_kind[bad-seed=1]",
    "test_hypothesis_draws_only_zero[seed=1]",
    "test_process_exits_if_crash_is_set[seed=1]",
}
UNSEEDED = {"test_own_parameter_named_seed_fails[own]", "test_without_seed_fails"}


@pytest.mark.ci
def test_default_seeds_are_constant_and_not_listed(tmp_path: Path) -> None:
    first, numbers = run(tmp_path, "", "-n", "0", "-m", FAST), read_drawn_numbers(tmp_path)
    assert first.keys() == {
        *FIXED,
        *UNSEEDED,
        "test_passes_with_each_seed[seed=1]",
        "test_passes_with_each_seed[seed=2]",
    }
    assert failed_seeds(first) == {
        "test_seed_fixture_has_good_kind[bad-seed=1]",
        "test_hypothesis_draws_only_zero[seed=1]",
    }
    assert run(tmp_path, "", "-n", "0", "-m", CI).keys() == {
        "test_passes_with_each_seed[seed=3]",
        "test_passes_with_each_seed[seed=4]",
    }
    assert run(tmp_path, "", "-n", "0", "-m", FAST) == first
    assert read_drawn_numbers(tmp_path) == numbers
    assert read_listed_tests(tmp_path) == []


@pytest.mark.ci
def test_failing_random_seeds_are_listed_and_repeated(tmp_path: Path) -> None:
    nightly, numbers = run(tmp_path, "random", "-n", "2", "--dist", "loadgroup"), read_drawn_numbers(tmp_path)
    failed = failed_seeds(nightly)
    names = sorted(re.sub(r"\d+", "N", name) for name in failed)
    assert names == [
        *["test_hypothesis_draws_only_zero[seed=N]"] * 4,
        "test_nightly_fails_with_each_seed[seed=N]",
        "test_seed_fixture_has_good_kind[bad-seed=N]",
    ]
    assert len({*numbers.values()}) == 4
    assert sorted(read_listed_tests(tmp_path)) == sorted(failed)
    again = run(tmp_path, "", "-n", "2", "--dist", "loadgroup", "-m", CI)
    assert again.keys() == {*failed, "test_passes_with_each_seed[seed=3]", "test_passes_with_each_seed[seed=4]"}
    assert failed_seeds(again) == failed
    assert read_drawn_numbers(tmp_path) == numbers
    assert run(tmp_path, "", "-n", "0", "-m", FAST).keys().isdisjoint(failed)
    nightly = run(tmp_path, "random", "-n", "0")
    assert failed_seeds(nightly) > failed
    assert sorted(read_listed_tests(tmp_path)) == sorted(failed_seeds(nightly))


@pytest.mark.ci
def test_random_seed_of_crashed_process_is_listed(tmp_path: Path) -> None:
    (failed,) = failed_seeds(run(tmp_path, "random", "-n", "1", "-k", "crash", crash="1"))
    assert read_listed_tests(tmp_path) == [failed]


def test_pytest_mark_expressions_equal_makefile_expressions() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f'-m "{FAST}"' in makefile
    assert f'-m "{CI}"' in makefile


def test_each_test_in_failing_seeds_file_exists() -> None:
    for line in (ROOT / FILE).read_text().splitlines():
        if not line.startswith("#"):
            path, _, name = line.partition("[")[0].partition("::")
            assert f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(), line


@pytest.mark.ci
def test_examples_of_a_seed_do_not_depend_on_imported_modules(tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text(f"NUMBERS = {[*range(10_001, 10_050)]}")
    names = {"test_hypothesis_draws[seed=1]": "PASSED"}
    assert run(tmp_path, "", "-n", "0", tests=RECORDING_TEST) == names
    numbers = read_drawn_numbers(tmp_path)
    assert run(tmp_path, "", "-n", "0", "-p", "constants", tests=RECORDING_TEST) == names
    assert read_drawn_numbers(tmp_path) == numbers

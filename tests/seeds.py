"""A pytest plugin that provides the seeds of tests, by the fixture `seed` and for Hypothesis.

The seed is part of the test's name: `test_it[seed=1]`. The first seed is 1, or N with MSGQ_TEST_SEED=N. With
MSGQ_TEST_SEED=random, as in `make nightly`, all seeds are drawn at random, and the name of each failed test is appended
to tests/failing_seeds.txt. Each run includes the tests of that list, marked `ci`.

The mark `seeds(fast, ci, nightly)` sets the number of seeds of a test: `fast` in `make test`, `ci` in `make ci`, and
`nightly` in a run with random seeds.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

FILE = Path("tests/failing_seeds.txt")  # path in pytest's root directory
BITS = 31  # bits of a random seed: C programs take it as an int
_FIRST = os.environ.get("MSGQ_TEST_SEED") or "1"
_DRAWN = _FIRST == "random"
_RUN = uuid4().hex
_NAME = re.compile(r"\S+::\w+\[.*\bseed=(\d+).*\]")

try:
    import hypothesis
    from hypothesis.internal.conjecture import providers
except ImportError:  # an installed wheel can be tested without it
    pass
else:
    # `derandomize` fixes the examples of tests whose seed is not set below. With the other settings, outcomes do not
    # depend on the machine's load.
    checks = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
    hypothesis.settings.register_profile(
        "msgq", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=checks
    )
    hypothesis.settings.load_profile("msgq")
    # Hypothesis also tries the constants of the imported modules. The examples of a seed would therefore depend on the
    # other tests of the run, and parsing the modules takes three seconds in each process. Hypothesis has no setting for
    # this. If a version lacks the function, this call raises AttributeError.
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


class Counts(NamedTuple):
    """The number of seeds of a test in `make test`, in `make ci` and with random seeds."""

    fast: int
    ci: int
    nightly: int


ONE = Counts(1, 1, 1)
OF_HYPOTHESIS = Counts(1, 1, 4)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seeds(fast, ci, nightly): numbers of seeds")
    config.addinivalue_line("markers", "listed: the seed is from tests/failing_seeds.txt")
    if _DRAWN and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Lister(config.rootpath / FILE))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Print the command that repeats the test, which pytest shows if it fails. Pass the seed to Hypothesis."""
    name = _name(item.nodeid)
    if (match := _NAME.fullmatch(name)) and isinstance(item, pytest.Function):
        print(f"to repeat: MSGQ_TEST_SEED={match[1]} pytest '{name}'")
        if _of_hypothesis(item.function):
            hypothesis.seed(int(match[1]))(item.function)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    usual = ONE
    if _of_hypothesis(metafunc.function):
        metafunc.fixturenames.append("seed")  # `parametrize` accepts no other names
        usual = OF_HYPOTHESIS
    if "seed" in metafunc.fixturenames and not _has_own_seeds(metafunc):
        mark = metafunc.definition.get_closest_marker("seeds")
        counts = Counts(*mark.args) if mark else usual
        metafunc.parametrize("seed", _params(metafunc.config, metafunc.definition.nodeid, counts), indirect=True)


def _params(config: pytest.Config, test: str, counts: Counts) -> list[Any]:
    if _DRAWN:
        dice = random.Random(f"{_run(config)} {test}")  # the same in each process of pytest-xdist
        params = [_param(dice.getrandbits(BITS)) for _ in range(counts.nightly)]
    else:
        first = int(_FIRST)
        params = [_param(first + number, *_marks(number, counts)) for number in range(counts.ci)]
    matches = [_NAME.fullmatch(line) for line in _listed(config) if line.startswith(f"{test}[")]
    seeds = {int(match[1]) for match in matches if match} - {param.values[0] for param in params}
    return params + [_param(seed, pytest.mark.ci, pytest.mark.listed) for seed in sorted(seeds)]


def _marks(number: int, counts: Counts) -> list[pytest.MarkDecorator]:
    return [] if number < counts.fast else [pytest.mark.ci]


def _param(seed: int, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(seed, marks=marks, id=f"seed={seed}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove tests with a listed seed that are not in the list: `_params` adds the seed to each variant of a test."""
    listed = _listed(config)
    items[:] = [each for each in items if not each.get_closest_marker("listed") or _name(each.nodeid) in listed]


class Lister:
    """Appends each test that fails with a random seed to the list, in the process that receives the reports."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = _name(report.nodeid)
        if report.failed and _NAME.fullmatch(name) and name not in _lines(self._path):
            with self._path.open("a") as file:
                file.write(f"{name}\n")


def _run(config: pytest.Config) -> str:
    """Return a word that all processes of a run share. Each run has another one."""
    return str(getattr(config, "workerinput", {}).get("testrunuid", _RUN))


def _of_hypothesis(function: object) -> bool:
    return getattr(function, "is_hypothesis_test", False)


def _has_own_seeds(metafunc: pytest.Metafunc) -> bool:
    names = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return any("seed" in (each.split(",") if isinstance(each, str) else each) for each in names)


def _name(nodeid: str) -> str:
    """Return the name without the group that pytest-xdist appends to it."""
    return re.sub(r"\]@[^\]]*$", "]", nodeid)


def _listed(config: pytest.Config) -> list[str]:
    return _lines(config.rootpath / FILE)


def _lines(path: Path) -> list[str]:
    """Return the names in the list; lines that begin with # are comments."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]

"""Fixtures for all tests: unique names, a watchdog, and a look at what a test leaves behind."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
from collections.abc import Iterator
from typing import IO
from uuid import uuid4

import pytest

from tests.support import SHM

WATCHDOG_SECONDS = 60.0
_stderr: list[IO[str]] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"watchdog(seconds): end a hanging test later than after {WATCHDOG_SECONDS} s")
    config.addinivalue_line("markers", "needs(*promises): skip for backends that do not promise this")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    _stderr.append(os.fdopen(os.dup(2), "w"))  # the real one: during a test it is captured


def pytest_unconfigure() -> None:
    _stderr.pop().close()


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the process when the test hangs, with a traceback of every thread; pytest-xdist reports it as failed."""
    mark = request.node.get_closest_marker("watchdog")
    faulthandler.dump_traceback_later(mark.args[0] if mark else WATCHDOG_SECONDS, exit=True, file=_stderr[-1])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def token() -> Iterator[str]:
    """A word that no other test has; no name in /dev/shm may contain it when the test and its fixtures are done."""
    word = f"t{uuid4().hex[:12]}"
    yield word
    left = [path for path in SHM.iterdir() if word in path.name]
    for path in left:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert not left, "left behind by the test"


@pytest.fixture
def endpoint(token: str) -> Iterator[str]:
    """An endpoint of this test alone, whose files are removed afterwards."""
    yield token
    for kind in ("msgq_", "msgqside_"):
        (SHM / f"{kind}{token}").unlink(missing_ok=True)


@pytest.fixture
def prefix(token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of this test alone, in force during it, for as many endpoints as wanted; removed afterwards."""
    name = f"p{token}"
    monkeypatch.setenv("OPENPILOT_PREFIX", name)
    yield name
    for kind in ("msgq_", "msgqside_"):
        shutil.rmtree(SHM / f"{kind}{name}", ignore_errors=True)

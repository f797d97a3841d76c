"""Fixtures for all tests: a clean environment, unique names, a watchdog, and a look at what is left behind."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import shutil
import signal
import threading
from collections.abc import Generator, Iterator
from typing import IO

import pytest

from tests import fork_server, missing_packages, reports, seeds, tiers
from tests.browser import browser as browser
from tests.leftovers import Leftovers, files_named, new_token, remove
from tests.object_store import object_store as object_store
from tests.object_store import s3_endpoint as s3_endpoint
from tests.object_store import s3_environment as s3_environment
from tests.run_times import RunTimes
from tests.support import SHM

WATCHDOG_SECONDS = 300.0
SHM_OF_PROCESS = 16 << 20  # shared memory in bytes that the tests of one process need at a time
THE_TESTS_OWN = ("MSGQ_STRESS", "MSGQ_TEST_SEED", "MSGQ_TEST_WITHOUT", "MSGQ_BENCH_STOCK")
_stderr: list[IO[str]] = []
_leftovers: list[Leftovers] = []

# The shell's settings of the library are not for the tests. They go here, in every process of pytest-xdist, before a
# test or another conftest imports msgq; children inherit what is left.
for _name in [name for name in os.environ if name.startswith(("MSGQ_", "CEREAL_", "OPENPILOT_PREFIX"))] + ["ZMQ"]:
    if _name not in THE_TESTS_OWN:
        os.environ.pop(_name, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`: two for each core, because a test waits for half of its time."""
    room = shutil.disk_usage(SHM).total // SHM_OF_PROCESS - 1
    return max(1, min(2 * len(os.sched_getaffinity(0)), room))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist come and go within the run
        _leftovers.append(Leftovers())
    fork_server.prepare()
    config.pluginmanager.register(RunTimes())
    config.pluginmanager.register(reports)
    config.pluginmanager.register(seeds)
    config.pluginmanager.register(tiers)
    if missing_packages.is_expected():
        config.pluginmanager.register(missing_packages)
    config.addinivalue_line("markers", f"watchdog(seconds): end a hanging test later than after {WATCHDOG_SECONDS} s")
    config.addinivalue_line("markers", "needs(*promises): skip for backends that do not promise this")
    config.addinivalue_line("markers", "needs_shm(bytes): skip while less of /dev/shm is free, for more than 16 MiB")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    signal.signal(signal.SIGTERM, functools.partial(_end_run, os.getpid()))
    _stderr.append(os.fdopen(os.dup(2), "w"))  # the real one: during a test it is captured


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Take the thousands of tests out of each garbage collection, which otherwise takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse names of tests that differ between processes, because pytest-xdist then runs no test."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid}: give this case an id without the address of an object")


def _end_run(process: int, number: int, frame: object) -> None:
    """End the run as Ctrl-C does, so that it removes its files. A forked child of a test ends at once, as usual."""
    if os.getpid() == process:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def pytest_unconfigure() -> None:
    _stderr.pop().close()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Fail the run for what it leaves behind, when its processes are gone, and remove it."""
    try:
        yield  # after an interrupt, the fixtures of a test end here, and may fail
    finally:
        fork_server.stop()
        left = _leftovers.pop().found() if _leftovers else []
        if left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print("\nleft behind by the run:", *left, sep="\n  ", file=_stderr[-1], flush=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which /dev/shm is too small, because it would fill it for the other tests, too."""
    if mark := item.get_closest_marker("needs_shm"):
        needed, free = mark.args[0] >> 20, shutil.disk_usage(SHM).free >> 20
        if free < needed:
            pytest.skip(f"needs {needed} MiB of /dev/shm, which has {free} MiB free (in a container: --shm-size)")


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the process when the test hangs, with a traceback of every thread; pytest-xdist reports it as failed."""
    mark = request.node.get_closest_marker("watchdog")
    faulthandler.dump_traceback_later(mark.args[0] if mark else WATCHDOG_SECONDS, exit=True, file=_stderr[-1])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def token() -> Iterator[str]:
    """A word that no other test has; no name in /dev/shm or /tmp may contain it when the test is over."""
    word = new_token()
    yield word
    left = files_named(word)
    for path in left:
        remove(path)
    assert not left, "left behind by the test"


@pytest.fixture(autouse=True)
def recorders() -> Iterator[None]:
    """Fail a test that leaves a recorder running, because it would take part in the tests after it."""
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if thread.name in ("msgq record", "msgq frames")} - before
    assert not left, "threads of a recorder left running by the test; stop it"


@pytest.fixture
def endpoint(token: str) -> Iterator[str]:
    """An endpoint of this test alone, or the name of a channel, queue or records; the files are removed afterwards."""
    yield token
    for kind in ("msgq_", "msgqside_", "msgqchan_", "msgqjobs_", "msgqrec_"):
        (SHM / f"{kind}{token}").unlink(missing_ok=True)
    for pool in SHM.glob(f"msgqpool_{token}:*"):
        pool.unlink()


@pytest.fixture
def prefix(token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of this test alone, in force during it, for endpoints of any kind; removed afterwards."""
    name = f"p{token}"
    monkeypatch.setenv("OPENPILOT_PREFIX", name)
    yield name
    for kind in ("msgq_", "msgqside_", "msgqchan_", "msgqpool_", "msgqjobs_", "msgqrec_"):
        shutil.rmtree(SHM / f"{kind}{name}", ignore_errors=True)

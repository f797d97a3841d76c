"""msgq.posix_ipc does what posix_ipc does: random programs on both, by the thousand, and the rest one by one."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from msgq import posix_ipc as ours
from msgq.errors import IpcError
from tests.contract.posix_children import Queues, kernel_has_queues
from tests.contract.posix_programs import MODULES, Stage, all_odd_values, far_end, outcome, program
from tests.support import LONGER, SHM, Child, in_fork

pytestmark = pytest.mark.skipif(not kernel_has_queues(), reason="the kernel has no message queues")
FAST, SLOW, SLICES = 300, int(3000 * LONGER), 6
ELSEWHERE = {"Semaphore", "SharedMemory", "unlink_semaphore", "unlink_shared_memory"}


@pytest.fixture
def stage(endpoint: str) -> Iterator[Stage]:
    with Child(far_end) as child:
        stage = Stage(child, [f"/{endpoint}a", f"/{endpoint}b"])
        yield stage
        stage.clear(*MODULES)
        child.say(None)
        child.result()
        stage.thread.shutdown()


# ---- random programs ----


def run_programs(stage: Stage, seeds: range) -> None:
    for seed in seeds:
        steps = program(random.Random(seed), stage.names)
        if stage.differs(steps):
            pytest.fail(stage.report(seed, steps))


@pytest.mark.ci
def test_random_programs_have_same_results_with_msgq_and_posix_ipc(stage: Stage) -> None:
    run_programs(stage, range(FAST))


@pytest.mark.filterwarnings("ignore:integer value out of range:DeprecationWarning")  # posix_ipc with Python 3.15
def test_unusual_arguments_have_same_results_with_msgq_and_posix_ipc(stage: Stage) -> None:
    for number, steps in enumerate(all_odd_values(stage.names)):
        if stage.differs(steps):
            pytest.fail(stage.report(number, steps))


@pytest.mark.ci
@pytest.mark.parametrize("part", range(SLICES))
def test_thousands_of_programs_have_same_results_with_msgq_and_posix_ipc(stage: Stage, part: int) -> None:
    size = SLOW // SLICES
    run_programs(stage, range(FAST + part * size, FAST + (part + 1) * size))


def test_random_program_difference_is_reduced_to_shortest_program(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the test."""

    def broken(message: Any) -> bytes:
        raise ValueError

    monkeypatch.setattr("msgq.posix_ipc.queue.to_bytes", broken)
    steps = [
        ("main", "open", 0, {"name": stage.names[0], "flags": ours.O_CREAT, "max_messages": 3, "max_message_size": 9}),
        *[("thread", "send", 0, message, 0, 1) for message in (b"fits", bytearray(b"fits"), b"")],
        ("child", "open", 0, {"name": stage.names[0]}),
        ("child", "drain", 0),
    ]
    assert stage.differs(steps)
    report = stage.report(7, steps).splitlines()
    assert report[0].startswith("seed 7")
    assert [line for line in report if "'send'" in line] == ["  ('thread', 'send', 0, bytearray(b'fits'), 0, 1)"]
    assert not any("child" in line for line in report)


# ---- names ----


def test_msgq_has_all_posix_ipc_queue_names_with_same_values() -> None:
    theirs = importlib.import_module("posix_ipc")
    for name in dir(theirs):
        if name.startswith(("_", "SEMAPHORE_")) or name in {"VERSION", *ELSEWHERE}:
            continue
        value = getattr(theirs, name)
        if isinstance(value, (int, str)):
            assert (name, getattr(ours, name), type(getattr(ours, name))) == (name, value, type(value))
        elif issubclass(type(value), type) and issubclass(value, Exception):
            assert outcome(value("x")) == outcome(getattr(ours, name)("x"))
        else:
            assert callable(getattr(ours, name))
        assert name in ours.__all__
    assert ours.VERSION == ours.__version__ == "1.3.2"


def test_posix_ipc_queue_class_has_the_same_methods_and_attributes() -> None:
    theirs = importlib.import_module("posix_ipc").MessageQueue
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert {name for name in dir(ours.MessageQueue) if not name.startswith("_")} == public


@pytest.mark.parametrize("name", sorted(ELSEWHERE | {"SEMAPHORE_VALUE_MAX"}))
def test_posix_ipc_semaphore_names_raise_error_that_names_the_library(name: str) -> None:
    with pytest.raises(AttributeError, match=f"only message queues; for {name}, use the library posix_ipc"):
        getattr(ours, name)
    with pytest.raises(AttributeError, match="has no attribute 'Queue'"):
        _ = ours.Queue


def test_posix_ipc_queue_has_the_defaults_of_linux(both: Queues) -> None:
    queue = both.open(both.posix.O_CREX, 0o600, 10, 8192)
    assert (queue.max_messages, queue.max_message_size) == (10, 8192)
    with contextlib.closing(both.posix.MessageQueue(both.name)) as again:
        assert repr(again) == repr(queue)
    queue.unlink()
    queue.close()
    queue = both.posix.MessageQueue(both.name, both.posix.O_CREX)
    both.opened.append(queue)
    assert (queue.max_messages, queue.max_message_size, queue.mode) == (10, 8192, 0o600)


def test_posix_ipc_queue_without_name_gets_a_generated_name(both: Queues) -> None:
    made = [both.posix.MessageQueue(None, both.posix.O_CREX, 0o600, 1, 1) for _ in range(2)]
    try:
        assert made[0].name != made[1].name
        for queue in made:
            assert queue.name.startswith("/")
            both.posix.MessageQueue(queue.name).close()
    finally:
        for queue in made:
            queue.unlink()
            queue.close()


def test_posix_ipc_queue_accepts_new_attributes_only_in_subclasses(both: Queues) -> None:
    class Jobs(both.posix.MessageQueue):  # type: ignore[misc, name-defined]
        def note(self, text: str) -> None:
            self.noted = text

    queue = both.open()
    with pytest.raises(AttributeError):
        queue.noted = "x"
    jobs = Jobs(both.name)
    jobs.note("x")
    assert (jobs.noted, str(jobs), repr(jobs)) == ("x", both.name, repr(queue))
    jobs.close()


# ---- permissions ----


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(("mode", "may"), [(0o600, False), (0o666, True)])
def test_posix_ipc_mode_decides_which_users_may_open_a_queue(both: Queues, mode: int, may: bool) -> None:
    umask = os.umask(0)
    try:
        both.open(both.posix.O_CREX, mode)
    finally:
        os.umask(umask)

    def try_it() -> None:
        os.setuid(65001)
        try:
            both.posix.MessageQueue(both.name)
        except both.posix.PermissionsError:
            assert not may
        else:
            assert may
        with pytest.raises(both.posix.PermissionsError):
            both.posix.unlink_message_queue(both.name)

    assert in_fork(try_it) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_posix_ipc_queue_of_untrusted_user_raises_permissions_error(own: Queues) -> None:
    def make() -> None:
        os.setuid(65001)
        os.umask(0)
        ours.MessageQueue(own.name, ours.O_CREX, 0o666, 1, 1)

    assert in_fork(make) == 0
    with pytest.raises(ours.PermissionsError, match="belongs to user 65001"):
        own.open(0)


@pytest.mark.parametrize(
    ("mode", "umask", "file"),
    [
        (0o600, 0o022, 0o600),
        (0o666, 0o000, 0o666),
        (0o666, 0o022, 0o600),
        (0o660, 0o002, 0o660),
        (0o644, 0o000, 0o600),
        (0o622, 0o000, 0o600),
        (0o777, 0o007, 0o660),
        (0o000, 0o000, 0o600),
        (-1, 0o000, 0o666),
    ],
)
def test_posix_ipc_queue_mode_respects_umask_and_drops_partial_rights(
    own: Queues, mode: int, umask: int, file: int
) -> None:
    before = os.umask(umask)
    try:
        queue = own.open(ours.O_CREX, mode)
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    path = SHM / f"msgqjobs_{own.name[1:]}"
    assert stat.S_IMODE(path.stat().st_mode) == file
    assert queue.mode == mode & 0xFFFFFFFF


# ---- calls that crash posix_ipc, or are impossible there ----


@pytest.mark.parametrize("message", [5, None, [1], 1.5, memoryview(b"abcdef")[::2], "\udc80"])
@pytest.mark.parametrize("priority", [0, -1])
def test_posix_ipc_message_is_text_or_a_contiguous_buffer(own: Queues, message: Any, priority: int) -> None:
    with pytest.raises((TypeError, BufferError, UnicodeEncodeError)):
        own.open().send(message, 0, priority)
    with pytest.raises((TypeError, BufferError, UnicodeEncodeError)):
        own.open(read=True, write=False).send(message)


def test_posix_ipc_invalid_calls_are_refused(own: Queues) -> None:
    queue = own.open()
    for wrong in ([], [b"", 0, 0, 0]):
        with pytest.raises(TypeError):
            queue.send(*wrong)
    for name in ("/a\0b", "a\0b"):
        with pytest.raises(ValueError, match=r"null|start"):
            ours.MessageQueue(name)
    with pytest.raises(AttributeError):
        del queue.block
    assert queue.block


@pytest.mark.needs_shm(200 << 20)
def test_posix_ipc_queue_may_exceed_limits_of_the_kernel(own: Queues) -> None:
    queue = own.open(ours.O_CREX, 0o600, 2000, 100_000)
    for number in range(2000):
        queue.send(str(number), 0)
    with pytest.raises(ours.BusyError):
        queue.send("x", 0)
    queue.receive()
    queue.send(bytes(100_000), priority=1)
    assert queue.receive() == (bytes(100_000), 1)
    assert [int(queue.receive(0)[0]) for _ in range(1999)] == list(range(1, 2000))


@pytest.mark.parametrize("sizes", [(65537, 1), (1, 2**30 + 1), (2**40, 2**40)])
def test_posix_ipc_limits_are_enforced(own: Queues, sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="give 1 to 65536 and 1 to 1073741824"):
        own.open(ours.O_CREAT, 0o600, *sizes)


def test_posix_ipc_open_without_memory_or_free_handle_raises_os_error(own: Queues) -> None:
    with pytest.raises(OSError, match=r"/dev/shm has \d+ bytes free") as caught:
        own.open(ours.O_CREAT, 0o600, 65536, 2**30)
    assert caught.value.errno
    for _ in range(128):
        own.open()
    with pytest.raises(OSError, match="128 open handles") as caught:
        own.open()
    assert caught.value.errno


def test_posix_ipc_timeout_above_kernel_maximum_raises_existential_error(both: Queues) -> None:
    queue = both.open()
    queue.send("x", 2**62)
    assert queue.receive(1e18) == (b"x", 0)
    for timeout in (2**63 - 1, 1e19, float("inf"), float("nan")):
        with pytest.raises(both.posix.ExistentialError):
            queue.receive(timeout)


def test_posix_ipc_errors_keep_the_text_of_work_queue_errors(own: Queues) -> None:
    queue = own.open()
    with pytest.raises(ours.BusyError, match=own.name) as caught:
        queue.receive(0)
    assert caught.value.errno
    with pytest.raises(ValueError, match="65 bytes does not fit: at most 64"):
        queue.send(bytes(65))
    with pytest.raises(ours.ExistentialError, match="not found") as missing:
        ours.MessageQueue(f"{own.name}not")
    assert isinstance(missing.value.__cause__, IpcError)


def test_posix_ipc_uses_the_selected_backend() -> None:
    """On the fake backend it is posix_ipc in one process."""
    code = """if True:
        from msgq import posix_ipc
        queue = posix_ipc.MessageQueue("/jobs", posix_ipc.O_CREX)
        queue.send("x", priority=3)
        assert queue.receive() == (b"x", 3)
        try:
            queue.receive(0)
        except posix_ipc.BusyError:
            print("busy")"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MSGQ_BACKEND": "fake"}, capture_output=True)
    assert (done.stdout, done.stderr) == (b"busy\n", b"")


def test_posix_ipc_user_signals_are_the_real_time_signals() -> None:
    assert (ours.USER_SIGNAL_MIN, ours.USER_SIGNAL_MAX) == (signal.SIGRTMIN, signal.SIGRTMAX)

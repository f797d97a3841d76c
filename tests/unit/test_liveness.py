"""Who is alive: exact, by start time, in one PID namespace."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from msgq.impl.base.process import identity, is_process_alive, is_thread_alive
from tests.support import Child, Task, run_child, wait_until
from tests.unit import children


def state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2]


def test_process_identity_equals_pid_and_start_time_of_kernel() -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert identity() == (os.getpid(), int(fields[19]), os.stat("/proc/self/ns/pid").st_ino)


def test_own_process_is_alive() -> None:
    assert is_process_alive(*identity()) is True


def test_reused_pid_with_different_start_time_is_dead() -> None:
    pid, start_time, namespace = identity()
    assert is_process_alive(pid, start_time + 1, namespace) is False
    assert is_process_alive(pid, start_time - 1, namespace) is False
    assert is_process_alive(pid, 0, namespace) is False


def test_process_in_another_pid_namespace_has_unknown_liveness() -> None:
    pid, start_time, namespace = identity()
    assert is_process_alive(pid, start_time, namespace + 1) is None
    assert is_process_alive(2**22 - 1, 5, 1) is None


@pytest.mark.parametrize("pid", [0, 2**31, 2**32 + 1, 2**63, 2**64 - 1])
def test_process_with_impossible_pid_is_dead(pid: int) -> None:
    assert is_process_alive(pid, *identity()[1:]) is False


def test_process_is_alive_until_it_exits_or_becomes_zombie() -> None:
    with Child(children.be_somebody) as child:
        who = child.hear()
        assert is_process_alive(*who) is True
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: is_process_alive(*who) is False)
        assert state(child.pid) == "Z"  # nobody has waited for it
        child.process.wait()
        assert is_process_alive(*who) is False


def test_stopped_process_is_alive() -> None:
    with Child(children.be_somebody) as child:
        who = child.hear()
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: state(child.pid) == "T")
        assert is_process_alive(*who) is True


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="needs the number of a system call")
def test_process_is_alive_while_one_of_its_threads_lives() -> None:
    with Child(children.leader_ends) as child:
        who = child.hear()
        wait_until(lambda: state(child.pid) == "Z")
        assert is_process_alive(*who) is True


def test_process_name_does_not_change_liveness() -> None:
    comm = Path("/proc/self/comm")
    name = comm.read_text()
    try:
        comm.write_text(") Z 0 (")
        assert is_process_alive(*identity()) is True
        assert is_thread_alive(os.getpid()) is True
    finally:
        comm.write_text(name.strip())


def test_thread_is_alive_until_it_ends() -> None:
    assert is_thread_alive(threading.get_native_id()) is True
    started, leave = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        leave.wait()

    task = Task(wait)
    started.wait()
    thread_id = task.native_id
    assert thread_id is not None
    assert is_thread_alive(thread_id) is True
    leave.set()
    task.result()
    wait_until(lambda: is_thread_alive(thread_id) is False)
    assert is_thread_alive(0) is False


def test_forked_child_has_its_own_process_identity() -> None:
    parent, child, parent_again = run_child(children.identities_around_a_fork)
    assert parent == parent_again
    assert parent[0] != child[0]

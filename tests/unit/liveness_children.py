"""Participants that become something else: another program, somebody in another namespace, the parent of children."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import msgq
from msgq.impl.base.process import LockFile
from tests.support import hear, say

PID, TIME = 0x20000000, 0x80  # CLONE_NEWPID, CLONE_NEWTIME
_NEWNS, _REC, _PRIVATE = 0x20000, 0x4000, 0x40000
_PDEATHSIG = 1  # PR_SET_PDEATHSIG
_CLONE = {"x86_64": 56, "aarch64": 220}

libc = ctypes.CDLL(None, use_errno=True)


def connect(role: str, endpoint: str) -> Any:
    """Return a socket; "reserve" is a publisher in the middle of a reservation."""
    if role == "sub":
        return msgq.sub_sock(endpoint)
    pub = msgq.pub_sock(endpoint)
    if role == "reserve":
        pub.send(b"whole")
        return pub, pub.reserve(64), pub
    return pub


def become_another_program(role: str, endpoint: str, count: int) -> None:
    """Connect, say so, and at the next word exec a program that knows nothing of it."""
    sockets = []
    for _ in range(count):
        sockets.append(connect(role, endpoint))
    say("connected")
    exec_into_sleep()


def leave_children() -> list[int]:
    """Return the pids of children that run on, one by each kind of fork."""
    children = []
    for fork in (os.fork, libc._Fork, lambda: libc.syscall(_CLONE[os.uname().machine], signal.SIGCHLD, 0, 0, 0, 0)):
        child = fork()
        if child == 0:
            signal.alarm(50)
            while True:
                signal.pause()
        children.append(child)
    return children


def fork_children(endpoint: str) -> None:
    """Subscribe, leave children, and say their pids."""
    sub = msgq.sub_sock(endpoint)
    say(leave_children())
    hear()
    assert sub


def lock_and_fork(path: str) -> None:
    """Lock a file, leave children, and say their pids."""
    lock = LockFile(path)
    say(leave_children())
    hear()
    assert lock


def lock_and_exec(path: str) -> None:
    """Lock a file, close all descriptors, and at the next word become another program."""
    lock = LockFile(path)
    os.closerange(3, 1 << 16)
    say("locked")
    exec_into_sleep()
    assert lock


def close_all_descriptors(endpoint: str) -> None:
    """Subscribe, and do what a daemon does to its descriptors."""
    sub = msgq.sub_sock(endpoint)
    os.closerange(3, 1 << 16)
    say("closed")
    hear()
    assert sub


def in_namespace(kind: int, role: str, endpoint: str, count: int = 1) -> None:
    """Connect as a process of a PID or time namespace of its own. Say its pid as it is outside, then "connected"."""
    run_in_namespace(kind, lambda: _keep([connect(role, endpoint) for _ in range(count)]))


def run_in_namespace(kind: int, function: Callable[[], Any]) -> None:
    """Run a function in a PID or time namespace of its own, whose process says its pid as it is outside."""
    if libc.unshare(kind | _NEWNS):
        say("not permitted")
        return
    if kind == TIME:
        with open("/proc/self/timens_offsets", "w") as offsets:
            offsets.write("boottime 100000 0\n")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a test that is over kills the parent only
        os.read(reader, 1)  # the parent speaks first
        signal.alarm(50)
        libc.mount(b"none", b"/", None, _REC | _PRIVATE, None)
        if kind == PID:
            libc.mount(b"proc", b"/proc", b"proc", 0, None)
        try:
            function()
        finally:
            os._exit(0)
    say(child)
    os.write(writer, b"x")
    os.waitpid(child, 0)


def _keep(sockets: list[Any]) -> None:
    """Keep sockets; a reservation is written and ended at the next word, and another message sent."""
    if isinstance(sockets[0], tuple):
        pub, reservation, _ = sockets[0]
        with reservation as view:
            say("connected")
            hear()
            view[:] = b"r" * 64
        pub.send(b"after")
        say("done")
    else:
        say("connected")
    hear()


def exec_into_sleep() -> None:
    """At the next word, become a program that knows nothing of this one."""
    hear()
    os.execvp("sh", ["sh", "-c", "echo '\"another program\"'; exec sleep 50"])


def control(endpoint: str) -> None:
    """Own a gate; at the next word become another program."""
    handle = msgq.fake_event_handle(endpoint, f"i-{endpoint}", enable=True)
    say("connected")
    exec_into_sleep()
    assert handle


def control_in_namespace(kind: int, endpoint: str) -> None:
    """Own a gate as a process of another namespace."""
    run_in_namespace(kind, lambda: control(endpoint))

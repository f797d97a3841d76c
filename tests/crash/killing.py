"""Processes that tests kill at random moments."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from tests.fork_server import CHILD_LIFETIME
from tests.support import LONGER

PATIENCE = 20.0  # seconds of killing


def fork() -> int:
    """As os.fork. The child ends by itself, should its parent forget it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads are none of Python's
        pid = os.fork()
    if pid == 0:
        signal.alarm(int(CHILD_LIFETIME * max(LONGER, 1)))
    return pid


def run_in_killed_child(function: Callable[..., None], *args: Any) -> int:
    """Run a function in a forked process until it is killed; it ends in another way only by a mistake."""
    if pid := fork():
        return pid
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def end(pid: int) -> bool:
    """Kill a child; true if it had ended by itself."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -signal.SIGKILL


def kill_at_random(
    start: Callable[[int], int],
    roles: int,
    rng: random.Random,
    kills: int,
    choose: Callable[[int], int],
    enough: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Keep a process of each role running, and kill one of them at a random moment, again and again.

    As often as wanted, and until `enough` was done, or for as long as a machine that is busy is given. `choose` returns
    the role for the n-th kill. Returns how many failed in another way than by being killed, and how many were killed.
    """
    pids = [start(role) for role in range(roles)]
    failed = killed = 0
    until = time.monotonic() + PATIENCE * max(LONGER, 1)
    while killed < kills and time.monotonic() < until:
        killed += 1
        role = choose(killed)
        time.sleep(rng.expovariate(200))  # the moment of the crime; nothing waits for it
        failed += end(pids[role])
        pids[role] = start(role)
    while not enough() and time.monotonic() < until:
        time.sleep(0.01)
    failed += sum(end(pid) for pid in pids)
    return {"failed": failed, "killed": killed + roles}

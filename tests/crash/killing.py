"""Processes that tests kill at random moments."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from tests.fork_server import CHILD_LIFETIME
from tests.support import LONGER


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

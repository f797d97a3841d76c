"""Processes that ask for the host's clock, in a shared memory of their own."""

from __future__ import annotations

import grp  # noqa: F401  # MSGQ_TRUST needs it, and another user perhaps cannot read the folders of this Python
import logging
import os
import time
from typing import Any

from msgq.common import settings, shm_paths
from msgq.impl.base import clock
from tests.support import hear, say


def read_clock(user: int | None = None) -> dict[str, Any]:
    warned: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("msgq").addHandler(handler)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    now = clock.time_ns()
    return {
        "offset": clock.offset_ns(),
        "off_by": abs(now - time.time_ns()),
        "trouble": clock.clock_problem(),
        "warned": warned,
    }


def read_clock_in_folder(folder: str, user: int | None = None) -> dict[str, Any]:
    """Say what this process's clock is, as a user, with that folder in the place of /dev/shm."""
    shm_paths.SHARED_MEMORY = folder
    return read_clock(user)


def ask_while_connecting(folder: str, trust: str) -> dict[str, Any]:
    """Say the same when the first stamp is made by a connect that trusts these users."""
    shm_paths.SHARED_MEMORY = folder
    with settings.overrides(trust=trust):
        return read_clock()


def ask_together(folder: str) -> int:
    """Wait until told to go, then say the offset."""
    shm_paths.SHARED_MEMORY = folder
    say("ready")
    hear()
    return clock.offset_ns()


def ask_again(folder: str) -> list[Any]:
    """Say the offset before and after what the parent does meanwhile, then what a fork finds."""
    shm_paths.SHARED_MEMORY = folder
    before = clock.offset_ns()
    say("ready")
    hear()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str(clock.offset_ns()).encode())
        os._exit(0)
    os.wait()
    return [before, clock.offset_ns(), int(os.read(reader, 100))]


def main() -> None:
    """For a process that `unshare` starts: folder on standard input, offset and time on standard output."""
    shm_paths.SHARED_MEMORY = hear()
    say([clock.time_ns(), clock.offset_ns(), clock.clock_problem()])

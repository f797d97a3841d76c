"""Processes that make origins."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from msgq.common import shm_paths
from msgq.impl.base import clock
from tests.support import hear, say


def make_origin_times(count: int, folder: str | None = None) -> dict[str, Any]:
    """Make so many, as soon as told, with that folder in the place of /dev/shm."""
    if folder is not None:
        shm_paths.SHARED_MEMORY = folder
    warned: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("msgq").addHandler(handler)
    say("ready")
    hear()
    before = clock.time_ns()
    made = [clock.new_origin_time() for _ in range(count)]
    return {
        "made": made,
        "trouble": clock.origin_problem(),
        "warned": warned,
        "before": before,
        "after": clock.time_ns(),
    }


def make_in_forks(count: int) -> list[list[int]]:
    """Make so many here, and as many in a child."""
    clock.new_origin_time()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, " ".join(str(clock.new_origin_time()) for _ in range(count)).encode())
        os._exit(0)
    here = [clock.new_origin_time() for _ in range(count)]
    os.close(writer)
    with os.fdopen(reader) as pipe:
        there = list(map(int, pipe.read().split()))
    os.wait()
    return [here, there]


def cut_and_make(path: str) -> list[int]:
    """Make one origin, and two after the file lost its bytes."""
    shm_paths.SHARED_MEMORY = str(Path(path).parent)
    before = clock.new_origin_time()
    os.truncate(path, 0)
    return [before, clock.new_origin_time(), clock.new_origin_time()]

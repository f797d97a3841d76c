"""Helpers of the examples: each function of a program runs in its own process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

SECONDS = 30.0  # time limit of a process


def start(function: Callable[..., None], *args: Any) -> BaseProcess:
    """Run a function in a new process, which receives only the arguments."""
    process = get_context("spawn").Process(target=function, args=args, daemon=True)
    process.start()
    return process


def wait_until(condition: Callable[[], bool], *processes: BaseProcess) -> None:
    """Wait until a condition is true. If a process ends before, raise RuntimeError."""
    while not condition():
        if ended := [process for process in processes if not process.is_alive()]:
            raise RuntimeError(f"{ended[0].name} ended with {ended[0].exitcode}")
        time.sleep(0.001)


def finish(*processes: BaseProcess) -> None:
    """Wait until all processes have ended. If a process fails or takes too long, raise RuntimeError."""
    for process in processes:
        process.join(SECONDS)
        if process.exitcode != 0:
            raise RuntimeError(f"{process.name} ended with {process.exitcode}")


def say(text: str) -> None:
    """Print a line in one call, so that lines of several processes do not mix."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

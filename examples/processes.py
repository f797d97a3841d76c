"""Functions of a program, each in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

SECONDS = 30.0  # that any of them may take


def start(function: Callable[..., None], *args: Any) -> BaseProcess:
    """Run a function in a new process, which knows nothing of this one but the arguments."""
    process = get_context("spawn").Process(target=function, args=args, daemon=True)
    process.start()
    return process


def finish(*processes: BaseProcess) -> None:
    """Return when all have ended; RuntimeError when one failed, or takes too long."""
    for process in processes:
        process.join(SECONDS)
        if process.exitcode != 0:
            raise RuntimeError(f"{process.name} ended with {process.exitcode}")


def say(text: str) -> None:
    """Print a line, whole, also when other processes print."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

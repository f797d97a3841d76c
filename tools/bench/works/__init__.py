"""Cases whose step is a whole piece of work: it writes, reads or decodes files, or runs on Spark.

The role of such a case is ``MODULE.FUNCTION``: a function in a module of this folder. It gets the job of the process
before each slice, prepares what must not be timed, and returns the step.
"""

import fcntl
import gc
import importlib
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from tools.bench import machine
from tools.bench.job import Job
from tools.bench.roles import Result, Role


class Step(NamedTuple):
    """The measured step of a slice.

    Attributes:
        run: does the work. It returns the number of things that were done, or a result with this number as ``done``.
        cpu_seconds: returns the processor time in s, whose difference is the processor time of the step.
    """

    run: Callable[[], Any]
    cpu_seconds: Callable[[], float] = machine.cpu_seconds


def is_work(role: str) -> bool:
    """Return whether the role is a function of this folder."""
    return "." in role


def work(job: Job) -> Role:
    """Do the work once in each slice, on all cores. Without peers, the first time is a warm-up."""
    module, name = job.role.split(".")
    prepare = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    if not job.case.peer_role:
        prepare(job).run()
    yield None
    while True:
        gc.enable()  # same setting as in programs of users
        yield _measure(prepare(job), job.case.unit)


def _measure(step: Step, unit: str) -> Result:
    used, start = step.cpu_seconds(), perf_counter()
    done = step.run()
    took, used = perf_counter() - start, step.cpu_seconds() - used
    result: Result = done if isinstance(done, dict) else {"done": done}
    count = result.pop("done", None)
    if unit == "cpu_rate":
        result["value"] = count / used
    elif unit in ("cpu", "ns") and "value" not in result:
        result["value"] = 1e9 * (used if unit == "cpu" else took)
    return {**result, "cores": used / took, "waited": 0.0}  # the other programs of the machine cost no processor time


def make_once(job: Job, name: str, write: Callable[[Path], object]) -> Path:
    """Return a file or folder of the run. The first process that needs it writes it, and the others wait."""
    path = job.folder / name
    with (job.folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft = path.with_name(f"draft-{name}")
            write(draft)
            draft.rename(path)
    return path

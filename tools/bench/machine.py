"""The machine: its description, the cores to use, and whether other programs use it."""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LOOK_S = 0.05
LOOKS = 20
_MEASURED = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class IdleGate:
    """Time that a run may spend on waits for an idle machine, and on repeats of disturbed measurements.

    Attributes:
        left_s: seconds that are left of it.
    """

    def __init__(self, budget_s: float) -> None:
        """Allow that many seconds."""
        self.left_s = budget_s

    def wait(self) -> None:
        """Wait until no other program uses the machine, at most 1 s."""
        for _ in range(LOOKS):
            before = _busy_ticks()
            time.sleep(LOOK_S)
            if _busy_ticks() == before or self.left_s <= 0:
                return
            self.left_s -= LOOK_S

    @contextmanager
    def charging(self) -> Iterator[None]:
        """Count the time of the ``with`` block."""
        start = time.monotonic()
        yield
        self.left_s -= time.monotonic() - start


def _busy_ticks() -> int:
    """Return the processor time that all cores have spent since the start of the machine, in clock ticks."""
    user, nice, system, _idle, _waiting, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq)))


def read_wait_ns() -> int:
    """Return how long this thread was ready to run but had no core; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except OSError:
        return 0


def cpu_seconds() -> float:
    """Return the processor time of this process and of its ended children in s."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, _MEASURED))


def cores() -> tuple[int, int]:
    """Return the cores of the two sides of a measurement; the same one twice where there is only one.

    The last two that are allowed: the first core of a machine tends to serve the interrupts.
    """
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[-2] if len(allowed) > 1 else allowed[-1]


def spare_cores() -> tuple[int, ...]:
    """Return the cores that are allowed beside those of `cores`."""
    return tuple(sorted(os.sched_getaffinity(0))[:-2])


def facts(compiler: list[str]) -> dict[str, str]:
    """Return what a reader of the figures must know about the machine and the build."""
    first, second = cores()
    words = [word.removeprefix(f"{os.getcwd()}/") for word in sys.argv[1:]]
    return {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores, sides pinned to {first} and {second}",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": _first_line([*compiler, "--version"]) if compiler else "none",
        "commit": read_commit(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "command": " ".join(["python -m tools.bench", *words]),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def read_commit() -> str:
    """Return the commit that is checked out, and whether files were changed."""
    commit = _first_line(["git", "-C", str(PROJECT), "rev-parse", "--short=12", "HEAD"])
    changed = _first_line(["git", "-C", str(PROJECT), "status", "--porcelain"])
    return f"{commit or 'none'}{' with changes' if changed else ''}"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.split("\n", 1)[0].strip() if done.returncode == 0 else ""

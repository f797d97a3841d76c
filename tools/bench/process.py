"""A measured process, seen from the runner."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job

PROJECT = Path(__file__).resolve().parents[2]
# What would change the names or the behaviour of a measured system is not inherited.
_DROPPED = (
    "OPENPILOT_PREFIX",
    "MSGQ_BACKEND",
    "MSGQ_MODE",
    "MSGQ_PREALLOC",
    "MSGQ_SPIN_US",
    "KICKMSG_SHM_MODE",
    "ZMQ",
    "MSGQ_ZMQ_TRANSPORT",
    "MSGQ_ZMQ_BIND",
    "MSGQ_ZMQ_MAP",
    "MSGQ_ZMQ_HWM",
    "MSGQ_ZMQ_CURVE",
)


class Absent(Exception):
    """The system is not installed."""


class Failed(Exception):
    """A measured process ended without a result; the text is the end of what it printed."""


class Process:
    """One fresh process with one job, killed at the latest when the context is left."""

    def __init__(self, job: Job, number: int = 0) -> None:
        """Start the process, one of those that have the job."""
        self._job = job
        self._errors = Path(job.folder) / f"{job.name}-{job.role}-{number}.err"
        with self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tools.bench.worker", job.to_json()],
                cwd=PROJECT,
                env={key: value for key, value in os.environ.items() if key not in _DROPPED},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._popen.pid

    def await_ready(self) -> None:
        """Wait until it has prepared its part.

        Raises
        ------
        Absent, Unsupported, Failed : there is nothing to measure.
        """
        self._read("ready")

    def start(self) -> None:
        """Let it measure a slice."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; result() says how
            self._popen.stdin.write("go\n")
            self._popen.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for the slice's result. The process ends itself at its limit, so this returns."""
        result: dict[str, Any] = self._read("result")
        return result

    def _read(self, wanted: str) -> Any:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            code = self._popen.wait()
            said = self._errors.read_text(errors="replace").strip()[-2000:]
            raise Failed(f"{self._job.role} of {self._job.system} ended with {code}: {said or 'no output'}")
        words = json.loads(line)
        if "absent" in words:
            raise Absent(words["absent"])
        if "unsupported" in words:
            raise Unsupported(words["unsupported"])
        return words[wanted]

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: by the end of its input, or at once if there was an error."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        if kind is not None:
            self._popen.kill()
        try:
            self._popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

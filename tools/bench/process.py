"""A measured process, seen from the runner: a fork of the runner, which has imported the measured systems.

A new interpreter would need 0.1 to 0.5 s for the same imports, and a run has thousands of processes. Only a process
that measures another checkout is a new interpreter.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
from multiprocessing import Pipe
from types import TracebackType
from typing import Any, Self

from tools.bench import worker
from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job

EXIT_S = 5.0
# Variables that change the names or the behaviour of a measured system. Measured processes do not inherit them.
_DROPPED = ("OPENPILOT_PREFIX", "MSGQ_", "KICKMSG_", "ZMQ")  # beginnings of their names
_KEPT = "MSGQ_BENCH_STOCK"
_IMPORTED = (
    *("numpy", "msgq.impl.ring.core", "msgq.channel", "msgq.workqueue", "msgq.records", "visionipc"),
    *("iceoryx2", "zmq", "posix_ipc"),  # not kickmsg, which prints a list of leaks at the end of the runner
)
_running: "set[Process]" = set()
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}


class Absent(Exception):
    """The system is not installed."""


class Failed(Exception):
    """A measured process ended without a result. The text is the end of its output."""


def import_systems() -> None:
    """Import what measured processes use. Call this before the first process, from the only thread."""
    for name in list(os.environ):
        if name.startswith(_DROPPED) and name != _KEPT:
            del os.environ[name]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy would start a thread, which a fork does not copy
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a measured process does not copy the pages of these objects


def end_processes() -> None:
    """Kill the processes that an interrupt left, also one whose context was not entered yet."""
    for process in list(_running):
        os.kill(process.pid, signal.SIGKILL)
        process.close()


class Process:
    """One fresh process with one job, killed at the latest when the context is left."""

    def __init__(self, job: Job) -> None:
        """Start the process."""
        self._job = job
        self._errors = job.folder / f"{job.name}-{job.role}-{job.number}.err"
        self._connection, other_end = Pipe()
        self._exit_code: int | None = None
        # An interrupt finds the process in _running, or no process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        self.pid = os.fork()
        if self.pid == 0:
            for process in (self, *_running):  # so that each process sees the end of its connection
                process._connection.close()
            worker.run_job(job, other_end, self._errors)
        _running.add(self)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        other_end.close()

    def await_ready(self) -> None:
        """Wait until it has prepared its part.

        Raises:
            Absent, Unsupported, Failed: there is nothing to measure.
        """
        self._read("ready")

    def start(self) -> None:
        """Let it measure a slice."""
        with contextlib.suppress(ConnectionError):  # the process has ended, and result() raises the reason
            self._connection.send(None)

    def result(self) -> dict[str, Any]:
        """Wait for the slice's result. The process ends itself at its limit, so this returns."""
        result: dict[str, Any] = self._read("result")
        return result

    def _read(self, word: str) -> Any:
        try:
            words = self._connection.recv()
        except (EOFError, ConnectionError):
            code = self._await_end()
            error_text = self._errors.read_text(errors="replace").strip()[-2000:]
            raise Failed(
                f"{self._job.role} of {self._job.system} ended with {code}: {error_text or 'no output'}"
            ) from None
        if "absent" in words:
            raise Absent(words["absent"])
        if "unsupported" in words:
            raise Unsupported(words["unsupported"])
        return words[word]

    def _await_end(self) -> int:
        """Return the exit code. Kill the process if it does not end soon."""
        if self._exit_code is None:
            process = os.pidfd_open(self.pid)
            ended, _, _ = select.select([process], [], [], EXIT_S)
            os.close(process)
            if not ended:
                os.kill(self.pid, signal.SIGKILL)
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit_code

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: by the end of its connection, or at once if there was an error."""
        if kind is not None and self._exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process by the end of its connection."""
        self._connection.close()
        self._await_end()
        _running.discard(self)

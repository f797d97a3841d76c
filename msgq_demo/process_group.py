"""Starts, kills and stops the processes of the demo."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

_END_TIMEOUT_S = 20.0  # more than a `ParentWatch` gives its process


class ProcessGroup:
    """The processes of a run. If this process dies, their standard inputs close, and they end."""

    def __init__(self, prefix: str) -> None:
        self._environment = {**os.environ, "OPENPILOT_PREFIX": prefix}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, names: Iterable[str]) -> None:
        """Start programs in their own sessions, so that Ctrl-C does not reach them."""
        for name in names:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "msgq_demo.roles", name],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )

    def kill(self, name: str) -> int:
        """Kill a process with SIGKILL, and return its pid."""
        process = self._processes.pop(name)
        process.kill()
        process.communicate()
        return process.pid

    def kill_during(self, name: str, is_busy: Callable[[int], bool]) -> int | None:
        """Stop a process, and kill it if it is busy. Otherwise, continue the process and return None."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # wait until it stands still
        if is_busy(process.pid):
            return self.kill(name)
        process.send_signal(signal.SIGCONT)
        return None

    def list_ended(self) -> list[str]:
        """Return the names of processes that ended without a request."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def stop(self, names: Iterable[str]) -> list[str]:
        """Request the end of processes, and wait. Return the names of those that failed or did not end."""
        stopped = {name: self._processes.pop(name) for name in names if name in self._processes}
        for process in stopped.values():
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(b"end")
            process.stdin.close()
        return [name for name, process in stopped.items() if _wait_for_exit(process) != 0]

    def kill_all(self) -> None:
        """Kill the remaining processes."""
        for name in list(self._processes):
            self.kill(name)


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

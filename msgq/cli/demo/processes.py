"""Processes of a demo: starts, kills and restarts them, and stops them without leftovers."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

from msgq.cli.demo.plan import DemoPlan

_END_TIMEOUT_S = 20.0  # more than a role gives itself


class ProcessGroup:
    """Owns the processes of a run.

    A process ends on request, or when this process dies and its `ParentWatch` notices.
    """

    def __init__(self, run: str, demo_plan: DemoPlan) -> None:
        self._run, self._plan = run, demo_plan
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, names: Iterable[str]) -> None:
        """Start these roles in their own session, so that Ctrl-C does not reach them."""
        for name in names:
            role = "subscribe" if name in self._plan.subscribers else "publish"
            command = [sys.executable, "-m", "msgq.cli.demo.roles", self._run, self._plan.name, role, name]
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, start_new_session=True
            )

    def get_pid(self, name: str) -> int | None:
        """Return the id of the role's process; None: no process."""
        process = self._processes.get(name)
        return process.pid if process else None

    def kill(self, name: str) -> None:
        """Kill the role's process with SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.communicate()

    def kill_while_working(self, name: str, at_work: Callable[[int], bool]) -> bool:
        """Kill the role's process if it has work. The call stops the process, checks it, and kills or continues it."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # until it stands still
        if not at_work(process.pid):
            process.send_signal(signal.SIGCONT)
            return False
        self.kill(name)
        return True

    def list_ended_roles(self) -> list[str]:
        """Return the roles that ended without a request."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def stop(self, names: Iterable[str]) -> list[str]:
        """Request the end of these roles, wait for them, and kill those that do not end.

        Return roles that ended with an error.
        """
        processes = {name: self._processes.pop(name) for name in list(names) if name in self._processes}
        for process in processes.values():
            _request_end(process)
        return [name for name, process in processes.items() if _wait_for_exit(process) != 0]

    def kill_all(self) -> None:
        """Kill all remaining processes."""
        for name in list(self._processes):
            self.kill(name)


def _request_end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            process.stdin.write(b"end")
            process.stdin.close()


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

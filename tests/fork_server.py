"""Starts child processes of the tests by fork, from a process that has imported their modules already.

A Python process that imports numpy and msgq costs 65 to 160 ms of processor time, a fork 5 to 10 ms. Each process of
the tests has one server. The server forks twice, so that a child's parent is the test, as with `subprocess`: the kernel
hands the child of an ended process to the next ancestor that is a "subreaper", which the test is for that moment.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
CHILD_LIFETIME = 100  # seconds after which a forgotten child ends by itself
_PR_SET_CHILD_SUBREAPER = 36
_REQUEST_BYTES = 1 << 20
# Variables that a process reads when it starts, or that others read in /proc/PID/environ.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "TMPDIR")


def needs_own_start(environment: dict[str, str]) -> bool:
    """Whether this environment only works in a process that starts with it."""
    server = _server().environment
    changed = [name for name in {*server, *environment} if server.get(name) != environment.get(name)]
    return any(name.startswith(_READ_AT_START) for name in changed)


class ForkedProcess:
    """A child process that the server has forked, with the interface of `subprocess.Popen`."""

    def __init__(self, call: list[str], environment: dict[str, str]) -> None:
        read_stdin, write_stdin = os.pipe()
        read_stdout, write_stdout = os.pipe()
        try:
            self.pid = _server().fork({"call": call, "environment": environment}, [read_stdin, write_stdout, 2])
        finally:
            os.close(read_stdin)
            os.close(write_stdout)
        self.args = call
        self.returncode: int | None = None
        self.stdin: IO[str] = os.fdopen(write_stdin, "w")
        self.stdout: IO[str] = os.fdopen(read_stdout)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status if the process has ended, negative for a signal."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status when the process has ended; `subprocess.TimeoutExpired` after `timeout` seconds."""
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while (code := self.poll()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(str(self.args), timeout or 0)
            self._wait_for_end(left)
        return code

    def _wait_for_end(self, seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):  # another thread was first
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], min(seconds, 60.0))
            finally:
                os.close(descriptor)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, None]:
        """Send `input`, close the standard input, and return the rest of the standard output when the process ends."""
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(input or "")
        output = self.stdout.read()
        self.wait(timeout)
        return output, None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class _Server:
    """The test's side of a server. The server ends when its socket closes, at the latest with this process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.environment = dict(os.environ)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = "from tests.fork_server import serve; serve()"
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", code, str(theirs.fileno())],
                cwd=ROOT,
                env={**self.environment, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Return the id of a new child of this process, with these as descriptors 0, 1 and 2."""
        data = json.dumps(request).encode()
        assert len(data) < _REQUEST_BYTES, "too large for one packet"
        with self._lock, _subreaper():
            socket.send_fds(self._socket, [data], descriptors)
            answer = self._socket.recv(16)
        assert answer, f"the fork server ended with {self._process.wait()}"
        return int(answer)

    def stop(self) -> None:
        """Return when the server has ended. Its children continue."""
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def _subreaper() -> Any:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


_servers: list[_Server] = []


def stop() -> None:
    """End the server of this process, if it has one."""
    while _servers:
        _servers.pop().stop()


def _server() -> _Server:
    if not _servers or _servers[0].owner != os.getpid():  # a forked process needs one of its own
        _servers[:] = [_Server()]
    return _servers[0]


def serve() -> None:
    """Fork children as requested, until the socket closes. Each child returns from this function as well."""
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
            if not data:
                return
            request = json.loads(data)
            if (module := request["call"][0]) not in sys.modules:
                with contextlib.suppress(Exception):  # the child reports it
                    importlib.import_module(module)
                gc.collect()
                gc.freeze()  # a collection in a child would copy the pages of all these objects
            if (pid := _fork_orphan()) == 0:
                break
            requests.send(str(pid).encode())
            for descriptor in descriptors:
                os.close(descriptor)
    _become(request, descriptors)


def _fork_orphan() -> int:
    """Return the id of a new process, which is not this one's child, or 0 in the new process."""
    pid_reader, pid_writer = os.pipe()
    go_reader, go_writer = os.pipe()  # closed when the new process has its final parent
    if between := _fork():
        os.waitpid(between, 0)
        orphan = int(os.read(pid_reader, 16))
        for descriptor in (pid_reader, pid_writer, go_reader, go_writer):
            os.close(descriptor)
        return orphan
    if pid := _fork():
        os.write(pid_writer, str(pid).encode())
        os._exit(0)
    os.close(go_writer)
    os.read(go_reader, 1)
    for descriptor in (pid_reader, pid_writer, go_reader):
        os.close(descriptor)
    return 0


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: a module may have started threads
        return os.fork()


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Make the forked process what a new one would be, and run the function."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    os.environ.clear()
    os.environ.update(request["environment"])
    call(*request["call"])


def main() -> None:
    """In a process with a start of its own: call the function that the command line names."""
    call(*sys.argv[1:])


def call(module: str, function: str, arguments: str) -> None:
    """Call a function in this process, and print what it returns as JSON."""
    faulthandler.dump_traceback_later(CHILD_LIFETIME, exit=True)
    value = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(value), flush=True)

"""Starts child processes of the tests by fork, from a server process that has already imported their modules.

A new Python process that imports numpy and msgq takes 65 to 160 ms of processor time, and 200 to 500 ms with a verb of
the command. A forked process takes 10 to 15 ms. Each process of the tests has one server.

The parent of a child is the test, as with `subprocess`. For this, the server forks twice, and the process in between
ends. The kernel then gives the child to its next ancestor that is a "subreaper", and the test is one at that moment.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import termios
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHILD_LIFETIME = 250  # seconds after which a forgotten child ends by itself
END_SECONDS = 30  # idle time after which the server ends
_PR_SET_CHILD_SUBREAPER = 36
_REQUEST_BYTES = 1 << 17  # a packet of a socket may be 200 KiB
# Children fork, also with threads. Since Python 3.15, a thread of faulthandler counts for the warning.
FORK_OPTIONS = ("-W", "ignore:This process:DeprecationWarning")
# Variables that a process or a module reads at its start, or that other processes read in /proc/PID/environ.
# LD_LIBRARY_PATH is not among them, because the import of OpenCV sets it.
_READ_AT_START = (
    *("PYTHON", "LANG", "LC_", "LD_PRELOAD", "MALLOC_", "GLIBC_", "OPENBLAS_", "TMPDIR"),
    *("MSGQ_BACKEND", "ZMQ"),
)


def needs_own_start(environment: Mapping[str, str]) -> bool:
    """Return whether a process must start with this environment to obey all of it."""
    server = _server().environment
    changed = [name for name in {*server, *environment} if server.get(name) != environment.get(name)]
    return any(name.startswith(_READ_AT_START) for name in changed)


def can_adopt_orphans() -> bool:
    """Return whether this process can be the parent of forked processes. The emulator QEMU 7.2 refuses."""
    try:
        with _subreaper():
            return True
    except OSError:
        return False


class ForkedProcess(subprocess.Popen[str]):
    """A forked process that calls a function with arguments that JSON can hold.

    The server imports the module of the function, and the modules `imports`, once for all children.
    """

    def __init__(
        self, module: str, function: str, arguments: Sequence[Any], imports: Sequence[str] = (), **options: Any
    ) -> None:
        self._imports = [module, *imports]
        super().__init__([module, function, json.dumps(arguments)], text=True, **options)

    # The step of Popen that starts a program. Its parameters are those of Python 3.11 to 3.15.
    def _execute_child(self, args: list[str], *options: Any) -> None:
        assert not options[1], "preexec_fn is not supported"
        assert not options[3], "pass_fds is not supported"
        cwd, environment, descriptors, new_session = options[4], options[5], options[9:15], options[20]
        request = {
            "imports": self._imports,
            "call": args,
            "directory": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if environment is None else environment),
            "new_session": new_session,
        }
        child_side = [descriptors[0], descriptors[3], descriptors[5]]
        inherited = [number if end == -1 else end for number, end in enumerate(child_side)]
        try:
            self.pid = _server().fork(request, inherited)
            self._child_created = True
        finally:
            self._close_pipe_fds(*descriptors)  # type: ignore[attr-defined]  # the child's ends


class _Server:
    """The test's end of the connection to a server. The server ends when this socket closes."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.environment = _environment or dict(os.environ)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = "from tests.fork_server import serve; serve()"
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", *FORK_OPTIONS, "-c", code, str(theirs.fileno())],
                cwd=ROOT,
                env={**self.environment, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a child of this process with these as its descriptors 0, 1 and 2; return its id."""
        data = json.dumps(request).encode()
        assert len(data) < _REQUEST_BYTES, "too large for one packet"
        with self._lock, _subreaper():
            socket.send_fds(self._socket, [data], descriptors)
            answer = self._socket.recv(16)
        if not answer:
            _servers.remove(self)  # the next child gets a new server
            raise ChildProcessError(f"the fork server ended with {self._process.wait()}")
        return int(answer)

    def stop(self) -> None:
        """End the server. Its children continue."""
        with self._socket:
            self._socket.shutdown(socket.SHUT_RDWR)  # forked processes of the test may hold copies of the socket
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Let this process become the parent of processes whose parent has ended."""
    _set_subreaper(True)
    try:
        yield
    finally:
        _set_subreaper(False)


def _set_subreaper(value: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot set PR_SET_CHILD_SUBREAPER")


_servers: list[_Server] = []
_start = threading.Lock()
_environment: dict[str, str] = {}
_tried: set[str] = set()  # in the server: modules that it has imported, or tried to import


def prepare() -> None:
    """Start later servers with the present environment, whichever test needs the first child."""
    _environment.update(os.environ)


def stop() -> None:
    """End the server of this process, if it has one."""
    while _servers:
        _servers.pop().stop()


def _server() -> _Server:
    with _start:
        if not _servers or _servers[0].owner != os.getpid():  # a forked process needs its own server
            _servers[:] = [_Server()]
        return _servers[0]


def serve() -> None:
    """Fork a child for each request until the socket closes. A child leaves the loop and calls its function."""
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
            if not data:
                return
            request = json.loads(data)
            _import(request["imports"])
            if (pid := _fork_orphan()) == 0:
                break
            requests.send(str(pid).encode())
            for descriptor in descriptors:
                os.close(descriptor)
    _become(request, descriptors)


def _import(modules: list[str]) -> None:
    """Import modules, so that all later children have them."""
    new = [module for module in modules if module not in _tried]
    for module in new:
        _tried.add(module)
        with contextlib.suppress(Exception):  # the child imports it again and reports the error
            importlib.import_module(module)
    if new:
        gc.collect()
        gc.freeze()  # a collection in a child would copy the pages of all these objects


def _fork_orphan() -> int:
    """Fork a process that is not a child of the server; return its id, or 0 in the new process."""
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
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns if a module has started threads
        return os.fork()


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Give a forked process the streams, session, folder and variables of a new one, and call the function."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    if request["new_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C in the terminal reaches the child
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        call(*request["call"])
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code or 0)
    else:
        _end(0)


def _end(code: int) -> None:
    """End a forked process without clearing its modules, which would copy the memory that it shares with the server."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for all threads but daemons
    atexit._run_exitfuncs()
    gc.collect()
    with contextlib.suppress(OSError):  # the usual end of Python reports it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """In a new process: call the function that the command line names."""
    call(*sys.argv[1:])


def call(module: str, function: str, arguments: str) -> None:
    """Call a function in this process, and print its result as JSON."""
    faulthandler.dump_traceback_later(CHILD_LIFETIME, exit=True)
    value = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(value), flush=True)

"""What the tests share: waiting for a condition, functions in other threads and processes, states of threads.

Nothing here imports pytest, so that a child process starts fast.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.fork_server import FORK_OPTIONS, ForkedProcess, can_adopt_orphans, needs_own_start

ROOT = Path(__file__).resolve().parent.parent
SHM = Path("/dev/shm")
DEADLINE = 60.0  # seconds that any condition may take; a bug is slower, nothing else is
DEADLINE_MS = int(DEADLINE * 1000)
# Numbers of system calls: futex, then futex_waitv, nanosleep, clock_nanosleep and ppoll.
_CALLS = {"x86_64": (202, 449, 35, 230, 271), "aarch64": (98, 449, 101, 115, 73)}
_ARCHITECTURE = Path("/proc/sys/kernel/arch")  # since Linux 6.1. The kernel's own, also in an emulated process
_FUTEX, *_PATIENT = _CALLS.get(
    _ARCHITECTURE.read_text().strip() if _ARCHITECTURE.exists() else os.uname().machine, (-1,)
)
_MANY_SLEEPS = 100  # more than a thread has before its first wait
_FUTEX_PRIVATE = 128  # a flag: the futex of one process
Step = TypeVar("Step")
LONGER = float(os.environ.get("MSGQ_STRESS") or 1)  # factor by which random tests run longer than usual


def wait_until(
    condition: Callable[[], Any],
    description: str = "the condition",
    deadline: float = DEADLINE,
    interval: float = 0.0005,
) -> Any:
    """Return the first true value of `condition`, asked each `interval`; AssertionError after `deadline` seconds."""
    until = time.monotonic() + deadline
    while not (value := condition()):
        assert time.monotonic() < until, f"{description} did not come true in {deadline} s"
        time.sleep(interval)
    return value


def shortest(steps: Sequence[Step], differs: Callable[[Sequence[Step]], bool]) -> Sequence[Step]:
    """Return as few steps of a program as still differ."""
    size = len(steps)
    while size := size // 2:
        at = 0
        while at < len(steps):
            fewer = [*steps[:at], *steps[at + size :]]
            if differs(fewer):
                steps = fewer
            else:
                at += size
    return steps


class Task(threading.Thread):
    """A function that runs in a thread of its own."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._call = function, args
        self._future: Future[Any] = Future()
        self.start()

    def run(self) -> None:
        function, args = self._call
        try:
            self._future.set_result(function(*args))
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Any:
        """Return what the function returns, or raise what it raises."""
        value = self._future.result(DEADLINE)
        self.join()
        return value

    def wait_asleep(self) -> None:
        """Return when the thread waits in the kernel."""
        wait_asleep(os.getpid(), self.native_id)

    def is_woken_by(self, act: Callable[[], Any]) -> bool:
        """Call `act` while the thread waits; return whether the wait was over when `act` returned."""
        self.wait_asleep()
        before: int = wait_until(self.sleeps)
        act()
        return self.sleeps() != before

    def sleeps(self) -> int | None:
        """Return how often the thread has gone to sleep; None: it is awake, or has ended."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return _sleeps(os.getpid(), self.native_id)
        return None


def asleep(pid: int, thread_id: int | None = None) -> bool:
    """Whether a thread sleeps in the kernel just now, perhaps only for a moment or for the GIL."""
    return _sleeps(pid, thread_id) is not None


def wait_asleep(pid: int, thread_id: int | None = None) -> None:
    """Return when a thread waits in the kernel for something other than the GIL.

    A nap, a ppoll and a wait on a futex that processes share count at once, and so do many sleeps: on a busy machine, a
    thread between two naps mostly waits for a CPU. Any other wait must last for more than two switch intervals, because
    it could be a short wait for a lock.
    """
    seen, since, first = _sleeps(pid, thread_id), time.monotonic(), _count_sleeps(pid, thread_id)[0]

    def waits() -> bool:
        nonlocal seen, since
        before, last = time.monotonic(), seen
        lasting = _lasts(pid, thread_id)
        seen = _sleeps(pid, thread_id)
        if lasting is False or seen is None or seen != last:
            since = time.monotonic()
        many = _count_sleeps(pid, thread_id)[0] - first > _MANY_SLEEPS
        return lasting or many or before - since > 2.5 * sys.getswitchinterval()

    wait_until(waits, f"thread {thread_id or pid} waits")


def _sleeps(pid: int, thread_id: int | None) -> int | None:
    """Return how often a sleeping thread has gone to sleep; None: it does not sleep."""
    count, is_asleep = _count_sleeps(pid, thread_id)
    return count if is_asleep else None


def _count_sleeps(pid: int, thread_id: int | None) -> tuple[int, bool]:
    """Return how often a thread has gone to sleep, and whether it sleeps."""
    status = Path(f"/proc/{pid}/task/{thread_id or pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    return int(fields["voluntary_ctxt_switches"]), fields["State"].startswith("S")


def _lasts(pid: int, thread_id: int | None) -> bool | None:
    """Whether a thread waits, as its system call shows. False: it runs or waits for the GIL; None: unknown."""
    try:
        call, *arguments = Path(f"/proc/{pid}/task/{thread_id or pid}/syscall").read_text().split()
    except PermissionError:
        return None
    if not call.isdigit():  # it runs, or is not in a system call
        return False
    if int(call) != _FUTEX:
        return int(call) in _PATIENT or None
    word, operation = (int(argument, 16) for argument in arguments[:2])
    if not operation & _FUTEX_PRIVATE:
        return True
    return False if _is_static(pid, word) else None


def _is_static(pid: int, address: int) -> bool:
    """Whether an address is in the static data of a program or library. The GIL is; other locks are not."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return "/" in line
    return False


@contextlib.contextmanager
def signal_when_asleep(handler: Any) -> Iterator[None]:
    """Let a signal handler run when this thread, the main thread, waits in the block.

    The signal comes at most once, and only while the handler is installed: the default action would end the process.
    """
    over, process = threading.Event(), os.getpid()

    def send_signal() -> None:
        wait_asleep(process)
        if not over.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    sending = Task(send_signal)
    try:
        yield
    finally:
        try:
            over.set()
            if os.getpid() == process:  # a child that the handler forks has no such thread
                sending.result()
        finally:
            signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def repeating(act: Callable[[], Any], pause: float) -> Iterator[None]:
    """Call `act` in another thread until the block ends, with a pause (in seconds) before each call."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause):
            act()

    task = Task(repeat)
    try:
        yield
    finally:
        over.set()
        task.result()


def wait_threads_asleep(name: str) -> None:
    """Return when each thread of this process whose name starts with `name` waits, as `wait_asleep`."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith(name):
            wait_asleep(os.getpid(), int(task.name))


def id_of_ended_thread() -> int:
    """Return the id of a thread of this process that is gone."""
    thread_id = int(Task(threading.get_native_id).result())
    wait_until(lambda: not Path(f"/proc/self/task/{thread_id}").exists())
    return thread_id


def find_dicts() -> list[dict[Any, Any]]:
    """Return all dicts, also those of the modules that a run of the tests hides from the garbage collector."""
    gc.unfreeze()
    try:
        return [each for each in gc.get_objects() if type(each) is dict]
    finally:
        gc.collect()
        gc.freeze()


def count_descriptors(path: str | os.PathLike[str]) -> int:
    """Return the number of this process's descriptors of a file."""
    status, found = os.stat(path), 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread has closed the descriptor
            found += os.path.samestat(os.fstat(int(name)), status)
    return found


def in_fork(function: Callable[[], Any]) -> int:
    """Return the exit code of a forked child that runs the function; one that hangs is killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + DEADLINE / 3
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.0005)
    return os.waitstatus_to_exitcode(ended[1])


class Child:
    """A function of a test module, run in a new process.

    It talks by `say` and `hear` (JSON lines on its standard output and input); what it returns is said last.
    """

    def __init__(self, function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None) -> None:
        environment = {**os.environ, **(env or {})}
        call = function.__module__, function.__qualname__
        options: Any = {"env": environment, "cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process: subprocess.Popen[str]
        if needs_own_start(environment) or not can_adopt_orphans():
            code = "from tests.fork_server import main; main()"
            words = [sys.executable, "-W", "error", *FORK_OPTIONS, "-c", code, *call, json.dumps(args)]
            self.process = subprocess.Popen(words, text=True, **options)
        else:
            self.process = ForkedProcess(*call, args, **options)

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> Any:
        """Return what the child says next; it has a watchdog, so this does not hang."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()} before it said anything"
        return json.loads(line)

    def say(self, value: Any = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """Return what the function returned, when the process has ended well."""
        value = self.hear()
        assert self.process.wait() == 0
        return value

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL return when the process is gone, after SIGSTOP when all its threads stop."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def run_child(function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None) -> Any:
    """Run a function in a new process and return what it returns."""
    with Child(function, *args, env=env) as child:
        return child.result()


def say(value: Any = None) -> None:
    """In a child: tell the parent."""
    print(json.dumps(value), flush=True)


def hear() -> Any:
    """In a child: wait for what the parent says."""
    return json.loads(sys.stdin.readline())

"""The driver of all kinds of endpoints (driver.c), and scenes in which it is killed or stopped at each point."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import msgq
from msgq.errors import IpcError
from tests.support import DEADLINE, SHM, wait_until
from tools.fuzz.build import HEADERS, cached_path, compiler, digest, run_compiler

HERE = Path(__file__).parent
ACCESSES = "*: [!b]*"  # all points but those before a system call
WRITES = "*: [!bl]*"  # points that change something; the others are called "loaded", or "looked at"
OFTEN = 4  # times that a victim stops at points of the same name: it looks at hundreds of rows, for example

T = TypeVar("T")


@cache
def driver_program() -> Path:
    """Return the driver, compiled with the sources of the C library."""
    drivers = sorted(HERE.glob("driver*.c"))
    included = {path for driver in drivers for path in re.findall(r'^#include "(c/\w+\.c)"', driver.read_text(), re.M)}
    sources = [path for path in sorted((HEADERS / "c").glob("*.c")) if f"c/{path.name}" not in included]
    flags = (
        "-std=gnu11",
        "-D_GNU_SOURCE=",
        "-O0",
        "-include",
        HERE / "driver.h",
        "-I",
        HEADERS,
        "-I",
        msgq.get_include(),
    )
    command = [compiler(), *map(str, (*flags, *drivers, *sources, "-pthread", "-ldl"))]
    headers = [path for folder in (HERE, HEADERS, Path(msgq.get_include())) for path in folder.rglob("*.[ch]")]
    key = digest(command, headers)
    return cached_path("driver", key, lambda target: run_compiler([*command, "-o", str(target)]))


def plan(number: int, at: int, point: str) -> dict[str, str]:
    """Return the environment with a plan for the points (interpose.c)."""
    return {"MSGQ_TEST_POINT": f"{int(number)} {at} {point}", "MSGQ_SPIN_US": "0"}


def message(number: int, size: int = 16) -> bytes:
    """Return a message as the driver makes them: its number in every word."""
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]


def number_of(data: bytes) -> int:
    """Return the number of a message, which must be whole."""
    number = int.from_bytes(data[:8], "little")
    assert data == message(number, len(data)), f"torn: {data.hex()}"
    return number


def state(pid: int) -> str:
    """Return the state of a process, as one letter of proc_pid_stat(5)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2]


class Driver:
    """A running driver."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        self.process = subprocess.Popen(command, text=True, env=os.environ | env, **pipes)
        self.pid = self.process.pid
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_until_ready(self) -> None:
        """Wait for its operation "ready", whatever it says before."""
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, "ready\n"):
            assert line, f"it ended with {self.process.wait()}: {self._lines}"
            self._lines.append(line.rstrip())

    def proceed(self) -> None:
        """Let it go on after its operation "ready"."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, *codes: int) -> list[str]:
        """Wait until it ends with one of these codes, or 0. Return the lines that it said."""
        out, _ = self.process.communicate(timeout=DEADLINE)
        self._lines += out.splitlines()
        assert self.process.returncode in (codes or (0,)), f"{self.process.args!r}: {self.process.returncode}, {out}"
        return self._lines

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        assert self.stops()

    def stops(self) -> bool:
        """Wait until it stops (True), or has ended and is not waited for yet."""
        return bool(wait_until(lambda: state(self.pid) if state(self.pid) in "TZ" else "", "the driver stopped") == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def numbers_said(lines: Iterable[str], what: str) -> list[int]:
    """Return the numbers that a driver said of one kind."""
    return [int(line.split()[-1]) for line in lines if re.fullmatch(rf"{what} \d+", line)]


class Place:
    """An endpoint, and everything that a test opens on it, closed at its end."""

    kind: ClassVar[str]
    start: ClassVar[str]  # start of the file's name
    rows: ClassVar[range] = range(0)  # offsets of the rows in the file

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.path = SHM / f"{self.start}{endpoint}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def another(self, name: object) -> Self:
        """Return a place of its own for another round of the same test."""
        return type(self)(f"{self.endpoint}-{name}")

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter `context`, to be left when the place is."""
        return self._stack.enter_context(context)

    def driver(self, operations: str, point: str = WRITES, at: int = 1, number: int = signal.SIGKILL) -> Driver:
        """Start the driver. The `at`-th point of this pattern after the operation "arm" raises the signal."""
        command = [str(driver_program()), self.kind, self.endpoint, *operations.split()]
        return self.enter(Driver(command, plan(number, at, point)))

    def join(self) -> None:
        """Have somebody come, who needs the lock of the file."""
        raise NotImplementedError

    def points(self, operations: str, point: str = WRITES) -> list[str]:
        """Return the names of the points that the driver passes."""
        return points_of(self.driver(operations, point, 0).end())

    def kill(self, operations: str, point: str = WRITES, at: int = 1) -> None:
        """Run the driver and see it killed at the point."""
        self.driver(operations, point, at).end(-signal.SIGKILL)

    def stopped(self, operations: str, point: str, at: int = 1) -> Driver:
        """Run the driver until it stops at the point."""
        victim = self.driver(operations, point, at, signal.SIGSTOP)
        assert victim.stops()
        return victim

    def waiting(self, operations: str) -> Driver:
        """Have a driver do this, and wait."""
        driver = self.driver(f"{operations} ready", "*never*")
        driver.wait_until_ready()
        return driver

    def killed(self, operations: str) -> None:
        """Have a driver do this, and kill it."""
        self.waiting(operations).kill()

    # ---- the file's bytes ----

    def word(self, at: int) -> int:
        with self.path.open("rb") as file:
            return int.from_bytes(os.pread(file.fileno(), 8, at), "little")

    def write(self, at: int, value: int) -> None:
        """Overwrite a word of the file."""
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), value.to_bytes(8, "little"), at)

    def taken_rows(self) -> list[int]:
        """Return the rows that are not free; their owners may be dead."""
        return [row for row, at in enumerate(self.rows) if self.word(at)]

    def generation(self, row: int) -> int:
        return self.word(self.rows[row] + 64)

    def kill_free_rows(self) -> None:
        """Give each row that nobody has an owner who is dead, so that the next to come takes the lowest of those."""
        for row in {*range(len(self.rows))} - {*self.taken_rows()}:
            self.write(self.rows[row], 1)


# ---- scenes ----


@dataclass(frozen=True)
class Scene:
    """What a victim does, after "arm" step by step.

    `step`: must be among the points, or the test has lost its subject.
    `former`: what another one did, who is killed while the victim says "ready".
    `heir`: the victim gets the row of that one, else one that was never used.
    `before`: how many messages come while it says "ready".
    """

    operations: str
    step: str = ""
    former: str = ""
    heir: bool = False
    before: int = 0


@dataclass
class Step:
    """Where a victim dies or stops; `at` 0: nowhere."""

    at: int = 0
    name: str = ""
    locked: bool = False  # True if it holds the file's lock there


class Play:
    """A scene on an endpoint of its own: who else is there, and what must hold afterwards."""

    def __init__(self, place: Any, scene: Any) -> None:
        self.place, self.scene = place, scene
        self.victim: Driver
        self.stood = False  # the victim was stopped, and the others went on

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        """Return the place of a scene."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Let the others come, before the victim."""

    def begin(self) -> None:
        """Let the others do something while the victim says "ready"."""

    def started(self, step: Step) -> None:
        """Let the others do something while the victim is at its steps."""

    def go_on(self, step: Step) -> None:
        """Let the others go on while the victim is stopped."""

    def check(self, step: Step, lines: list[str]) -> None:
        """Check what is left, and go on. `lines`: what the victim said."""
        raise NotImplementedError

    def run(self, step: Step, number: int) -> list[str]:
        """Play until the victim is killed or stopped. Return its points, and whether it came to the step."""
        self.prepare()
        point = WRITES if number == signal.SIGKILL else ACCESSES
        self.victim = self.place.driver(self.scene.operations, point, step.at, number)
        if "ready" in self.scene.operations:
            self.victim.wait_until_ready()
            if self.scene.former:
                self.place.killed(self.scene.former)
            if self.scene.heir:
                self.place.kill_free_rows()
            self.begin()
            self.victim.proceed()
        self.started(step)
        if number == signal.SIGSTOP and step.at and self.victim.stops():
            self.stood = True
            self.go_on(step)
            self.victim.go_on()
        lines = self.victim.end(0, -signal.SIGKILL) if step.at and number == signal.SIGKILL else self.victim.end()
        self.check(step, lines)
        return lines


def points_of(lines: list[str]) -> list[str]:
    """Return the names of the points that a driver passed."""
    return [line for line in lines if re.match(r"\w+: \w+ ", line)]


def locks_of(names: list[str]) -> Iterator[bool]:
    """Yield for each step whether the lock is held behind it."""
    held = False
    for name in names:
        held = (held or name == "call: after lock") and name != "call: after unlock"
        yield held


def first_line(problem: Exception) -> str:
    return (str(problem) or repr(problem)).splitlines()[0]


def at_each_step(act: Callable[[Step], list[str]], steps: Iterable[str] = (), often: int | None = None) -> None:
    """Play without an end, which tells the steps, and then with an end at each; report all that fail.

    `steps`: must be among the points. `often`: so many of the same name at most.
    """
    names = points_of(act(Step()))
    assert names
    for name in steps:
        assert name in names, f"no such step any more; the steps are {names}"
    problems, seen = [], Counter[str]()
    for at, (name, locked) in enumerate(zip(names, locks_of(names), strict=True), 1):
        seen[name] += 1
        if often and seen[name] > often:
            continue
        try:
            act(Step(at, name, locked))
        except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
            problems.append(f"at step {at} ({name}): {first_line(problem)}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


def play_all(endpoint: str, play: type[Play], scene: Scene, number: int) -> None:
    """Have the victim of a scene killed, or stopped, at each of its points, each time on an endpoint of its own."""

    def act(step: Step) -> list[str]:
        with play.make(f"{endpoint}-{step.at}", scene) as place:
            return play(place, scene).run(step, number)

    at_each_step(act, [scene.step] if scene.step else [], OFTEN if number == signal.SIGSTOP else None)

"""Random programs for one kind of endpoints, and the answers that backends give to them.

A program is a list of lines of Python. Each line calls a method of a handle, or opens a handle and gives it a name. A
machine runs the lines on one backend. Two backends agree if each line has the same answer on both: the value, or the
type and the text of the error, and then the counters of the handles in the line.

No line waits, and no answer depends on the time or on the process, because an answer omits times, process ids and
paths. A queue, record or channel of shared memory therefore gives the same answers in each run, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from msgq.impl import backend as backends
from tests.support import shortest

BACKENDS = ("msgq", "fake")
#: Fields of statistics that differ between two runs on the same backend.
OMITTED = {"pid", "thread_id", "start_time", "path", "creator", "oldest_age_ns", "last_age_ns", "age_ns", "last_index"}
TIME_MIN = 10**9  # virtual time begins at 1 s, and no size or count of a program is as large
_HANDLE = re.compile(r"\b[a-z]+\d+\b")
_UNSTABLE = [(re.compile(r"(/dev/shm|bus:\d+)/[\w./:-]+"), "PATH")]
_UNSTABLE += [(re.compile(r"\b(process|pid|user|uid) \d+"), r"\1 N")]
_UNSTABLE += [(re.compile(r"\(\d+\)"), "(N)")]  # the process of a handle


class Line(str):
    """A line of a program, and the operation that it was made of."""

    operation: str


class Failure(NamedTuple):
    """The answer of a line that raised an error."""

    error: str
    errno: int | None
    text: Any


class Kind(NamedTuple):
    """What programs of a kind are made of.

    Attributes:
        machine: runs the lines.
        operations: lines with their weights. ``{sub}`` stands for a handle named `sub` and a number, ``sub = ...``
            opens one, ``{size}`` stands for one of the values `size`, and ``{number}`` for the number of the line.
        values: names and what they stand for. A name in capitals stands for the same value in a whole program.
        start: the first operations of each program.
    """

    machine: type[Machine]
    operations: Mapping[str, int]
    values: Mapping[str, Sequence[object]]
    start: Sequence[str]

    def make_program(self, seed: object, length: int = 40) -> list[Line]:
        """Return the program of a seed."""
        return _Writer(self, random.Random(f"{seed}")).write(length)

    def answers(self, lines: Sequence[str], token: str) -> list[list[Any]]:
        """Return the answers of each backend. `token` begins the names of the endpoints."""
        return [self.machine(name, token).run(lines) for name in BACKENDS]

    def differs(self, lines: Sequence[str], token: str) -> bool:
        """Return True if the backends give different answers."""
        real, fake = self.answers(lines, token)
        return real != fake

    def describe_difference(self, lines: Sequence[str], token: str) -> str:
        """Return the shortest part of a program that still differs, with the answers that differ as comments."""
        lines = [line for line in lines if not line.lstrip().startswith("#")]
        lines = shortest(lines, lambda part: self.differs(part, token))
        text = []
        for line, *answers in zip(lines, *self.answers(lines, token), strict=True):
            text.append(line)
            if answers[0] != answers[1]:
                text += [f"    # {name}: {answer!r}" for name, answer in zip(BACKENDS, answers, strict=True)]
        return "\n".join(text)


class _AbsentError(Exception):
    """An operation needs a handle, and none is open."""


class _Writer(dict[str, str]):
    """Writes a program. As a mapping, it has what the braces of an operation stand for."""

    def __init__(self, kind: Kind, rng: random.Random) -> None:
        super().__init__()
        self._kind, self._rng = kind, rng
        self._number = 0
        self._open: dict[str, list[str]] = {}

    def write(self, length: int) -> list[Line]:
        operations, weights = list(self._kind.operations), list(self._kind.operations.values())
        lines = [self._write_line(operation) for operation in self._kind.start]
        while len(lines) < length:
            with contextlib.suppress(_AbsentError):
                lines.append(self._write_line(self._rng.choices(operations, weights)[0]))
        return lines

    def _write_line(self, operation: str) -> Line:
        self._number += 1
        text = operation.format_map(self)
        role, opens, call = text.partition(" = ")
        handle, closes, _ = text.partition(".close(")
        if opens:
            self._open.setdefault(role, []).append(f"{role}{self._number}")
            text = f"{role}{self._number} = {call}"
        elif closes and self._rng.random() < 0.9:  # otherwise, later lines use the closed handle
            self._open[handle.rstrip("0123456789")].remove(handle)
        line = Line(text)
        line.operation = operation
        return line

    def __missing__(self, name: str) -> str:
        if name == "number":
            return str(self._number)
        if name in self._kind.values:
            text = repr(self._rng.choice(self._kind.values[name]))
            return self.setdefault(name, text) if name.isupper() else text
        if not self._open.get(name):
            raise _AbsentError
        handles = self._open[name]
        return handles[
            int(len(handles) * self._rng.random() * self._rng.random())
        ]  # later ones may have failed to open


class Machine:
    """Runs a program on one backend. The lines can call the methods of this class."""

    def __init__(self, backend: str, token: str) -> None:
        self.backend = backends.load_backend(backend)
        self._token = token
        self._names: dict[str, Any] = {name: getattr(self, name) for name in dir(self) if name[0] != "_"}

    def run(self, lines: Sequence[str]) -> list[Any]:
        """Return the answer of each line, and remove what the program opened and created."""
        former = backends.set_backend(self.backend)
        try:
            return [self._answer(*_compile_line(line)) for line in lines]
        finally:
            self._end()
            backends.set_backend(former)

    def _answer(self, target: str, code: CodeType, handles: list[str]) -> Any:
        value = self._attempt(lambda: eval(code, self._names))
        if target and not isinstance(value, Exception):
            self._names[target] = value
        used = [self._names[name] for name in handles if name in self._names]
        return self._plain(value), [self._plain(self._attempt(functools.partial(self._seen, each))) for each in used]

    def _attempt(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call, or its error."""
        try:
            return call()
        except Exception as error:
            return error.with_traceback(None)

    def _plain(self, value: Any) -> Any:
        """Return a value without what differs between two runs."""
        if value is None or isinstance(value, (bool, bytes, float)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value) if value < TIME_MIN else "TIME"
        if isinstance(value, str):
            return functools.reduce(lambda text, each: each[0].sub(each[1], text), _UNSTABLE, self._strip(value))
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, Exception):
            return Failure(type(value).__name__, getattr(value, "errno", None), self._plain(str(value)))
        if isinstance(value, (np.ndarray, np.void)):
            return str(value.dtype), self._plain(value.tolist())
        if isinstance(value, Mapping):
            return {key: self._plain(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(each) for each in value]
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value) if field.name not in OMITTED]
            return {name: self._plain(getattr(value, name)) for name in names}
        return next(kind.__name__ for kind in type(value).__mro__ if not kind.__name__.endswith("OnBus"))

    def _strip(self, text: str) -> str:
        return text.replace(self._token, "")

    def _seen(self, handle: Any) -> Any:
        """Return the counters of a handle."""
        raise NotImplementedError

    def _end(self) -> None:
        """Close all handles, and remove all endpoints."""
        raise NotImplementedError

    # ---- helpers of several kinds ----

    def message(self, number: int, size: int) -> bytes:
        return number.to_bytes(8, "little").ljust(size, b".")[:size]

    def messages(self, number: int, size: int, count: int) -> list[bytes]:
        return [self.message(number * 1000 + each, size) for each in range(count)]

    def poll(self, *handles: Any) -> list[int]:
        poller = self.backend.Poller()
        for handle in handles:
            poller.registerSocket(handle)
        return [handles.index(handle) for handle in poller.poll(0)]


@functools.lru_cache(1 << 10)  # both backends run the same lines
def _compile_line(line: str) -> tuple[str, CodeType, list[str]]:
    """Return the name that a line gives, the code of its call, and the handles in the line."""
    target, opens, call = line.partition(" = ")
    if not opens:
        target, call = "", line
    return target, compile(call, "<line>", "eval"), _HANDLE.findall(line)

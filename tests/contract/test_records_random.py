"""The same random program on vectors and boards in shared memory and on a model of plain NumPy: all that can be seen
of it is the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from msgq.errors import MsgqError
from tests.contract.conftest import records_of
from tests.contract.record_model import Model

SEEDS = pytest.mark.seeds(2, 6, 50)
STEPS = 400
PADDED = np.dtype([("flag", "i1"), ("value", "f8")], align=True)
DTYPES = [np.dtype("i8"), np.dtype("u1"), np.dtype("S60"), PADDED, np.dtype([("inner", PADDED, (2,)), ("x", "f4")])]
KEYS = ["a", "b", "a longer key", "é"]


def filled(dtype: np.dtype[Any], rng: random.Random, count: int) -> np.ndarray[Any, Any]:
    """Return rows that differ; their padding is zeros everywhere."""
    rows = np.zeros(count, dtype)
    for i in range(count):
        number = rng.randrange(1, 120)
        if dtype.names is None:
            rows[i] = b"%d" % number * (number % 9) if dtype.kind == "S" else number
        elif "x" in dtype.names:
            rows[i] = ([(number, number / 2), (1, 2)], number)
        else:
            rows[i] = (number, number / 4)
    return rows


def plain(rows: Any) -> Any:
    """Return values without their padding, which nobody promises."""
    names = rows.dtype.names
    return rows.tolist() if names is None else [(name, plain(rows[name])) for name in names]


class Program:
    """Handles that come and go, and what is done with them."""

    def __init__(self, vector: Callable[..., Any], board: Callable[..., Any], unlink: Callable[[str], None]) -> None:
        self.vector, self.board, self.unlink_name = vector, board, unlink
        self.handles: list[Any] = []
        self.entries: list[Any] = []
        self.observed: list[Any] = []

    def do(self, rng: random.Random, steps: list[str]) -> Any:
        """Do something, and return all that can be seen of it."""
        step = rng.choice(steps)
        state = rng.getstate()
        try:
            result: Any = getattr(self, f"_{step}")(rng)
        except MsgqError as error:
            result = type(error).__name__, error.errno
        rng.setstate(state)  # an error in the middle must not leave them apart
        rng.random()
        return step, result, [self.seen(handle) for handle in self.handles]

    def seen(self, handle: Any) -> Any:
        if handle.closed:
            return None
        if hasattr(handle, "keys"):
            return handle.keys(), handle.items(), handle.capacity, handle.wait(0)
        return handle.dtype.descr, plain(handle.read()), handle.counts().tolist(), handle.wait(0)

    def close(self) -> None:
        for each in (*self.entries, *self.handles):
            each.close()

    # ---- vectors ----

    def handle(self, rng: random.Random) -> Any:
        if not self.handles:
            self.handles.append(self.vector(DTYPES[0], 5, name="a"))
        return rng.choice(self.handles)

    def _open(self, rng: random.Random) -> None:
        if len(self.handles) > 8:
            self.handles.pop(0).close()
        options: dict[str, Any] = {
            "exclusive": rng.choice([None, None, None, False, True]),
            "copies": rng.choice([None, None, None, 2, 4]),
            "passive": rng.random() < 0.1,
        }
        if not options["passive"]:
            options["create"] = rng.choice([None, None, None, None, True, False])
        dtype = rng.choice([None, *DTYPES, DTYPES[0], DTYPES[0]])
        length = rng.choice([None, 1, 5, 5, 5, 9])
        self.handles.append(self.vector(dtype, length, name=rng.choice("ab"), **options))

    def _close(self, rng: random.Random) -> None:
        self.handle(rng).close()

    def _leave(self, rng: random.Random) -> None:
        self.handle(rng)
        self.handles.pop(rng.randrange(len(self.handles))).close()

    def _unlink(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self.handle(rng).unlink()
        else:
            self.unlink_name(rng.choice("ab"))

    def selection(self, rng: random.Random, length: int) -> Any:
        many = [rng.randrange(length) for _ in range(rng.randrange(6))]
        mask = [rng.random() < 0.5 for _ in range(length)]
        bounds: list[Any] = [rng.choice([None, *range(-length - 1, length + 2)]) for _ in range(2)]
        return rng.choice(
            [many, np.array(many, "i4"), mask, np.array(mask), slice(bounds[0], bounds[1], rng.choice([None, -1, 2]))]
        )

    def _put(self, rng: random.Random) -> None:
        handle = self.handle(rng)
        index = rng.randrange(-1, len(handle) + 1)
        value = filled(handle.dtype, rng, 1)[0]
        handle[index] = value.item() if handle.dtype.names and rng.random() < 0.5 else value

    def _put_many(self, rng: random.Random) -> None:
        handle = self.handle(rng)
        selection = self.selection(rng, len(handle))
        count = len(np.arange(len(handle))[selection])
        values = filled(handle.dtype, rng, count if rng.random() < 0.8 else 1)
        if rng.random() < 0.5:
            handle[selection] = values
        else:
            handle.write(selection, values, timeout=rng.choice([0, 1, None]))

    def _get(self, rng: random.Random) -> Any:
        handle = self.handle(rng)
        return plain(handle[rng.randrange(-1, len(handle) + 1)])

    def _get_many(self, rng: random.Random) -> Any:
        handle = self.handle(rng)
        selection = self.selection(rng, len(handle))
        found = handle[selection] if rng.random() < 0.3 else handle.read(selection)
        out = np.zeros(len(found), handle.dtype)
        return plain(found), plain(handle.read(selection, out)), handle.counts(selection).tolist()

    def _snapshot(self, rng: random.Random) -> Any:
        return plain(self.handle(rng).snapshot(atomic=rng.random() < 0.5))

    def _changes(self, rng: random.Random) -> Any:
        indices, rows, _, counts = self.handle(rng).changes()
        return indices.tolist(), plain(rows), counts.tolist()

    def _claim(self, rng: random.Random) -> None:
        self.handle(rng).claim()


class BoardProgram(Program):
    """The same for boards."""

    def handle(self, rng: random.Random) -> Any:
        if not self.handles:
            self.handles.append(self.board(3, 16, name="a"))
        return rng.choice(self.handles)

    def _open(self, rng: random.Random) -> None:
        if len(self.handles) > 8:
            self.handles.pop(0).close()
        if rng.random() < 0.1:
            self.vector(DTYPES[0], 5, name="a").close()  # a vector under a board's name: they do not collide
        self.handles.append(self.board(rng.choice([None, 3, 3]), rng.choice([None, 16]), name=rng.choice("ab")))

    def _declare(self, rng: random.Random) -> None:
        self.entries.append(self.handle(rng).declare(rng.choice(KEYS)))

    def _write(self, rng: random.Random) -> None:
        if self.entries:
            rng.choice(self.entries).write(bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 8, 16, 17]))))

    def _give_back(self, rng: random.Random) -> None:
        if self.entries:
            self.entries[rng.randrange(len(self.entries))].close()
            self.entries = self.entries[-12:]

    def _get(self, rng: random.Random) -> Any:
        return self.handle(rng)[rng.choice(KEYS)]

    def _observe(self, rng: random.Random) -> None:
        self.observed = [*self.observed[-5:], self.handle(rng).observe(rng.choice(KEYS))]

    def _look(self, rng: random.Random) -> Any:
        if not self.observed:
            return None
        observed = rng.choice(self.observed)
        return observed.changed, observed.data() if rng.random() < 0.6 else None, observed.changed

    def _changes(self, rng: random.Random) -> Any:
        found = self.handle(rng).changes()
        return {key: value if isinstance(value, tuple) else (value.data, value.count) for key, value in found.items()}


ELEMENTS = ["put"] * 5 + ["put_many"] * 4 + ["get", "get_many", "snapshot", "changes", "changes"]
HANDLES = ["open", "open", "leave"]
VALUES = ["declare"] * 4 + ["write"] * 8 + ["get", "observe", "look", "look", "changes", "give_back", "give_back"]
KINDS: dict[str, tuple[type[Program], list[str]]] = {
    "elements": (Program, ELEMENTS + HANDLES),
    "writers": (Program, ELEMENTS + HANDLES * 3 + ["claim", "close", "close"]),
    "removed": (Program, ELEMENTS + HANDLES * 4 + ["unlink"] * 3),
    "boards": (BoardProgram, VALUES + HANDLES),
    "boards removed": (BoardProgram, VALUES + HANDLES * 2 + ["close", "unlink"]),
}


@contextmanager
def program(name: str, token: str, kind: type[Program]) -> Iterator[Program]:
    with contextlib.ExitStack() as stack:
        if name == "model":
            model = Model()
            running = kind(model.vector, model.board, model.unlink)
        else:
            chosen = stack.enter_context(contextlib.closing(records_of(name, token)))  # type: ignore[type-var]
            records = next(chosen)
            running = kind(records.vector, records.board, lambda each: records.Board.unlink_name(records.name + each))
        stack.callback(running.close)
        yield running


@pytest.mark.parametrize("kind", KINDS)
@SEEDS
def test_random_record_program_has_equal_results_in_shared_memory_and_model(token: str, seed: int, kind: str) -> None:
    transcripts = {}
    cls, steps = KINDS[kind]
    for name in ("model", "msgq"):
        rng = random.Random(f"{kind} {seed}")
        with program(name, token, cls) as running:
            transcripts[name] = [running.do(rng, steps) for _ in range(STEPS)]
    for step, (expected, seen) in enumerate(zip(*transcripts.values(), strict=True)):
        assert seen == expected, f"step {step}"
    assert {step for step, *_ in transcripts["model"]} == set(steps)

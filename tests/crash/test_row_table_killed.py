"""Rows with a generation: whoever takes a row that changed hands is never taken for the owner before."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.victims import WRITES, Driver

ROW_BYTES = 96


class Rows:
    """A file with rows."""

    def __init__(self, tools: Path, path: Path, count: int, stack: contextlib.ExitStack) -> None:
        path.write_bytes(bytes(count * ROW_BYTES))
        self._program, self._path, self._stack = tools / "row_table", path, stack

    def driver(self, operations: str, point: str = WRITES, at: int = 1) -> Driver:
        command = [str(self._program), str(self._path), str(int(signal.SIGKILL)), point, str(at), *operations.split()]
        return self._stack.enter_context(Driver(command))

    def taken(self, operations: str = "take") -> tuple[int, int]:
        """Return the row and the generation that a process got, which ends without leaving."""
        _, row, _, generation = self.driver(operations).ended(0)[-1].split()
        return int(row), int(generation)

    def ask(self, row: int, generation: int) -> str:
        """Return whether the owner lives whom a word with these two names."""
        return self.driver(f"ask:{row}:{generation}").ended(0)[0]


@pytest.fixture
def make(tools: Path, tmp_path: Path) -> Iterator[Callable[..., Rows]]:
    with contextlib.ExitStack() as stack:
        yield lambda name, count=1: Rows(tools, tmp_path / str(name), count, stack)


def test_reused_row_has_new_generation(make: Any) -> None:
    rows = make("rows")
    first = rows.taken()
    assert rows.ask(*first) == "dead"
    second = rows.driver("take ready")
    assert second.process.stdout is not None
    _, row, _, generation = second.process.stdout.readline().split()
    assert int(row) == first[0]
    assert int(generation) != first[1]
    assert second.process.stdout.readline() == "ready\n"
    assert rows.ask(int(row), int(generation)) == "alive"
    assert rows.ask(*first) == "dead", "its successor in the row lives, and is not it"
    second.process.communicate("\n")
    assert rows.ask(int(row), int(generation)) == "dead"


def test_released_row_is_free_and_owner_counts_as_dead(make: Any) -> None:
    rows = make("rows")
    assert rows.driver("take leave ask:0:1").ended(0)[-1] == "dead"
    assert rows.taken() == (0, 2)


def test_row_table_prefers_free_rows_to_rows_of_dead_owners(make: Any) -> None:
    rows = make("rows", 3)
    assert [rows.taken()[0] for _ in range(5)] == [0, 1, 2, 0, 0]


def test_row_takeover_killed_at_each_step_leaves_usable_row(make: Any) -> None:
    """What: a process dies at each point of taking a dead one's row; then comes the next one.

    Why: words of the piece name row and generation, and are believed as long as the generation stands.

    Failure would mean: a word of the dead names a living process, so that nobody may put it right; or two living
    processes are named by the same word.
    """
    points = make("trace").driver("arm take", WRITES, 0).ended(0)[:-1]
    assert any("row->generation" in point for point in points)
    for at in range(1, len(points) + 1):
        rows = make(at)
        first = rows.taken()
        rows.driver("arm take", WRITES, at).ended(-signal.SIGKILL)
        assert rows.ask(*first) == "dead", points[at - 1]
        last = rows.driver("take ready")
        assert last.process.stdout is not None
        _, row, _, generation = last.process.stdout.readline().split()
        assert (int(row), int(generation) > first[1]) == (first[0], True), points[at - 1]
        assert rows.ask(*first) == "dead", points[at - 1]
        assert rows.ask(int(row), int(generation)) == "alive", points[at - 1]


def test_row_generation_wraps_after_65536_owners(make: Any, tmp_path: Path) -> None:
    rows = make("rows")
    first = rows.taken()
    path = tmp_path / "rows"
    data = bytearray(path.read_bytes())
    assert data[64:72] == (1).to_bytes(8, "little")
    data[64:72] = (0xFFFF).to_bytes(8, "little")
    path.write_bytes(data)
    assert rows.ask(*first) == "dead"
    assert rows.taken() == (0, 0)

"""The journal of a lake on a local disk: a kill at any step leaves all of an entry, or nothing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

pytest.importorskip("pyspark")
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.journal import Input, Journal
from msgq.spark.lake.message_files import RANGES


class Mortal(LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """Dies instead of the n-th change to the disk."""

    left = 0

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def create_dir(self, path: str, **more: Any) -> None:
        self._live()
        super().create_dir(path, **more)

    def move(self, src: str, dest: str) -> None:
        self._live()
        super().move(src, dest)

    def delete_dir(self, path: str) -> None:
        self._live()
        super().delete_dir(path)


def dies(changes: int, function: Any, root: Path) -> bool:
    """Return whether a journal dies in a function of it, after so many changes."""
    lake = Directory(str(root))
    lake.files = files = Mortal()
    files.left = changes
    try:
        function(Journal(lake))
    except KeyboardInterrupt:
        return True
    return False


PARTS = [f"date=2026-01-0{day}/class=small/{day}.parquet" for day in (1, 2, 3)]


def staged(root: Path) -> None:
    """Make a lake with parts that are not committed yet."""
    for part in PARTS:
        path = root / "_staged" / "one" / part
        path.parent.mkdir(parents=True)
        path.write_text(part)
    (root / "_journal").mkdir()


def commit(journal: Journal) -> None:
    ranges = pa.Table.from_pylist([{"part": part, "rows": 1} for part in PARTS], RANGES)
    journal.commit("one", ranges, [Input("x", 1, 2)], [])


def test_a_commit_that_dies_at_any_step_is_all_or_nothing(tmp_path: Path) -> None:
    """And so it is when the next one, who puts it right, dies at any step, too."""
    outcomes = []
    for first in itertools.count():
        for second in itertools.count():
            root = tmp_path / f"{first}-{second}"
            staged(root)
            died = dies(first, commit, root)
            died_again = dies(second, Journal.recover, root)
            Journal(Directory(str(root))).recover()
            there = sorted(str(path.relative_to(root / "messages")) for path in root.glob("messages/*/*/*"))
            noted = Journal(Directory(str(root))).names()
            assert (there, noted) in (([], []), (PARTS, ["one"])), f"dead after {first} changes, then after {second}"
            assert not list(root.rglob("_staged/*"))
            outcomes.append(bool(noted))
            if not died_again:
                break
        if not died:
            break
    assert set(outcomes) == {False, True}
    assert len(outcomes) > 15

"""Gold in a lake: what was made of the messages, run by run.

LAKE/gold/TABLE/run_id=.../*.parquet
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgq.spark import tables
from msgq.spark.lake.journal import Journal
from msgq.spark.lake.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATE = "gold/_state.json"


class Gold:
    """The tables of gold of a lake. For its one writer, and any number of readers."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal

    def names(self) -> list[str]:
        """Return the tables that there are."""
        return list(self._state()["schemas"])

    def table(self, name: str) -> DataFrame | None:
        """Return a table; None: there is none of this name."""
        columns = self._state()["schemas"].get(name)
        return None if columns is None else self._read(name, columns)

    def refresh(self, messages: DataFrame, window_ns: int, limits: tables.Limits | None, every: bool) -> int:
        """Make the tables again of those runs that have new messages; return how many runs.

        All runs, where the lake has other tables than those that are made now: another release made them.
        """
        state = self._state()
        every = every or set(state["schemas"]) != set(tables.GOLD)
        names = self._journal.names()
        runs = self._journal.runs(names if every else set(names) - set(state["done"]))
        if not self._store.is_parquet and runs:
            runs = self._journal.runs(names)  # whole tables are written there
        if runs or not state["schemas"]:
            chosen = messages.where(messages.run.isin(sorted(runs)))
            idle: set[str] = set()

            def keep(name: str, table: DataFrame) -> DataFrame:
                written = self._replace(name, table, runs, state, is_empty=name in idle)
                if name == "windows":
                    idle.update(_idle(written))
                return written

            tables.gold(chosen, window_ns, limits, keep)
        self._store.put(_STATE, state | {"done": names})
        return len(runs)

    def _replace(
        self, name: str, table: DataFrame, runs: Iterable[str], state: dict[str, Any], is_empty: bool
    ) -> DataFrame:
        """Write the rows of some runs in place of those that were there; return them. is_empty : it has none."""
        from pyspark.sql import functions as F

        columns = state["schemas"][name] = table.schema.jsonValue()
        marked = table.withColumn("run_id", F.substring(F.sha2("run", 256), 1, 16))
        if self._store.is_parquet:
            for run in runs:
                self._store.remove(f"gold/{name}/run_id={_run_id(run)}")
            if is_empty:  # to look for no rows takes as long as for a few
                return table.where(F.lit(False))
        mode = "append" if self._store.is_parquet else "overwrite"
        self._store.save(marked, f"gold/{name}", ["run_id"], mode)
        written = self._read(name, columns)
        return written.where(written.run.isin(sorted(runs)))

    def _read(self, name: str, columns: dict[str, Any]) -> DataFrame:
        from pyspark.sql.types import StringType, StructType

        whole = StructType(StructType.fromJson(columns).fields).add("run_id", StringType())
        return self._store.read(f"gold/{name}", whole).drop("run_id")

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._store.get(_STATE, {"done": [], "schemas": {}})
        return found


def _run_id(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _idle(windows: DataFrame) -> list[str]:
    """Return the tables that have no rows: there are no messages of what they are about."""
    return [name for name, there in tables.has_rows(windows).collect()[0].asDict().items() if not there]

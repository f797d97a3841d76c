"""Filters of messages, and the files that they select."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable

from msgq.lake.bronze import bronze_reader
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.message_filter import MessageFilter
from msgq.spark.lake.pushed_filters import make_message_filters
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message

FILES = 12


def make_store(where: Path) -> BronzeStore:
    """Return a store with 12 files: file N has the endpoints `aN`, `m` and `zN` at the times 10 N to 10 N + 2."""
    lake = LakeDirectory(where)
    store, result = BronzeStore(lake, InPlaceExecutor()), TaskResult()
    for number in range(FILES):
        rows = [message(name, number, 10 * number + i) for i, name in enumerate((f"a{number}", "m", f"z{number}"))]
        result.written_files.add_files(write_bronze([batch(rows)], lake))
    store.commit_task_result([], [], result)
    return store


@pytest.fixture(autouse=True, scope="module")
def _check_endpoints_of_few_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bronze_reader, "_UNCHECKED_FILES_MAX", 0)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BronzeStore:
    return make_store(tmp_path_factory.mktemp("lake"))


def find_numbers(store: BronzeStore, *filters: MessageFilter) -> list[int]:
    """Return the numbers of the selected files."""
    paths = [store.table.resolve_file_path(path) for path in store.list_paths(filters)]
    return sorted(pq.read_table(path, columns=["sequence"]).column("sequence")[0].as_py() for path in paths)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (MessageFilter(), list(range(FILES))),
        (MessageFilter(start_time=10), list(range(1, FILES))),
        (MessageFilter(start_time=12), list(range(1, FILES))),
        (MessageFilter(start_time=13), list(range(2, FILES))),
        (MessageFilter(end_time=10), [0]),
        (MessageFilter(end_time=11), [0, 1]),
        (MessageFilter(start_time=30, end_time=30), []),
        (MessageFilter(frozenset({"a3"})), [3]),
        (MessageFilter(frozenset({"m"}), 20, 50), [2, 3, 4]),
        (MessageFilter(frozenset({"a1", "z5"})), [1, 5]),
        (MessageFilter(frozenset({"a1"}), 30), []),
        (MessageFilter(frozenset({"b"})), []),
        (MessageFilter(frozenset()), []),
        (MessageFilter(start_time=1 << 63), []),
        (MessageFilter(end_time=-(1 << 63)), []),
        (MessageFilter(start_time=-(1 << 70), end_time=1 << 70), list(range(FILES))),
    ],
)
def test_filter_selects_files_with_matching_messages(
    store: BronzeStore, wanted: MessageFilter, numbers: list[int]
) -> None:
    assert find_numbers(store, wanted) == numbers


def test_several_filters_select_files_of_each(store: BronzeStore) -> None:
    assert find_numbers(store, MessageFilter(frozenset({"a1"})), MessageFilter(end_time=1)) == [0, 1]
    assert find_numbers(store) == []


def test_random_filters_select_every_file_with_matching_message(store: BronzeStore) -> None:
    rng = random.Random(7)
    names = [f"{letter}{number}" for letter in "az" for number in range(FILES)] + ["m", "none"]
    for _ in range(60):
        endpoints = frozenset(rng.sample(names, rng.randrange(1, 4))) if rng.random() < 0.7 else None
        start, end = (rng.choice((None, rng.randrange(130))) for _ in range(2))
        expected = [
            number
            for number in range(FILES)
            if any(
                (endpoints is None or name in endpoints)
                and (start is None or time >= start)
                and (end is None or time < end)
                for time, name in enumerate((f"a{number}", "m", f"z{number}"), 10 * number)
            )
        ]
        found = find_numbers(store, MessageFilter(endpoints, start, end))
        assert set(expected) <= set(found)
        if endpoints is None:
            assert expected == [number for number in found if number in expected]


def test_file_without_committed_ranges_is_selected(tmp_path: Path) -> None:
    lake, store = LakeDirectory(tmp_path), make_store(tmp_path)
    written = write_bronze([batch([message("m", 77, 5)])], lake)
    store.table.commit_files(store.table.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)
    # A kill before the commit of the aggregates leaves a file whose endpoints are unknown.
    assert 77 in find_numbers(store, MessageFilter(frozenset({"m"}), 0, 9))


def test_file_without_statistics_is_selected(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    plain = LakeTable(LakeDirectory(tmp_path), "messages", ["date", "size_class"])
    (file,) = write_bronze([batch([message("m", 88, 5)])], LakeDirectory(tmp_path)).bronze_files
    about = pq.read_metadata(plain.resolve_file_path(file.path))
    store.table.commit_files(store.table.read_snapshot(), BRONZE_COLUMNS, [plain.describe_file(file.path, about)])
    assert 88 in find_numbers(store, MessageFilter(start_time=110))


def test_delta_log_has_statistics_for_other_programs(store: BronzeStore) -> None:
    delta = DeltaTable(store.table.resolve_file_path(""))
    rows: list[dict[str, Any]] = delta.to_pyarrow_dataset().to_table(columns=["endpoint", "log_time"]).to_pylist()
    assert len(rows) == 3 * FILES
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    found = sorted((row["min.log_time"], row["max.log_time"], row["min.endpoint"]) for row in actions)
    assert found == [(10 * number, 10 * number + 2, f"a{number}") for number in range(FILES)]


def test_intersection_passes_what_both_filters_pass() -> None:
    assert MessageFilter().intersect(MessageFilter()) == MessageFilter()
    first, second = MessageFilter(frozenset("ab"), 5), MessageFilter(frozenset("bc"), 3, 9)
    assert first.intersect(second) == second.intersect(first) == MessageFilter(frozenset("b"), 5, 9)
    assert first.intersect(MessageFilter(frozenset("c"))).selects_nothing
    assert MessageFilter(end_time=4).intersect(first).selects_nothing


class Condition:
    """A condition with the methods of Spark's Java objects."""

    def __init__(self, name: str, *values: Any) -> None:
        self._name, self._values = name, values

    def getClass(self) -> Condition:
        return self

    def getSimpleName(self) -> str:
        return self._name

    def attribute(self) -> Any:
        return self._values[0]

    def value(self) -> Any:
        return self._values[1]

    def values(self) -> Any:
        return self._values[1]

    def left(self) -> Any:
        return self._values[0]

    def right(self) -> Any:
        return self._values[1]


A, B = (Condition("EqualTo", "endpoint", name) for name in "ab")
EARLY, LATE = Condition("LessThan", "log_time", 5), Condition("GreaterThanOrEqual", "log_time", 9)
ALL = [MessageFilter()]


@pytest.mark.parametrize(
    ("conditions", "filters"),
    [
        ([], ALL),
        ([A], [MessageFilter(frozenset("a"))]),
        ([A, B], [MessageFilter(frozenset())]),
        ([A, EARLY], [MessageFilter(frozenset("a"), None, 5)]),
        ([Condition("And", A, LATE)], [MessageFilter(frozenset("a"), 9)]),
        ([Condition("Or", A, B)], [MessageFilter(frozenset("ab"))]),
        ([Condition("Or", A, LATE)], [MessageFilter(frozenset("a")), MessageFilter(start_time=9)]),
        ([Condition("Or", A, Condition("Not", B))], ALL),
        ([Condition("Or", EARLY, Condition("Not", B))], ALL),
        ([Condition("Or", EARLY, LATE), B], [MessageFilter(frozenset("b"), None, 5), MessageFilter(frozenset("b"), 9)]),
        ([Condition("In", "endpoint", ["a", None, "b"])], [MessageFilter(frozenset("ab"))]),
        ([Condition("In", "endpoint", [None])], [MessageFilter(frozenset())]),
        ([Condition("In", "log_time", [7, 3])], [MessageFilter(None, 3, 8)]),
        ([Condition("In", "log_time", [None])], ALL),
        ([Condition("EqualTo", "log_time", 5)], [MessageFilter(None, 5, 6)]),
        ([Condition("GreaterThan", "log_time", 5)], [MessageFilter(None, 6)]),
        ([Condition("LessThanOrEqual", "log_time", 5)], [MessageFilter(None, None, 6)]),
        (
            [
                Condition("Not", A),
                Condition("StringStartsWith", "endpoint", "a"),
                Condition("EqualNullSafe", "endpoint", None),
            ],
            ALL,
        ),
        (
            [
                Condition("EqualTo", "run", "a"),
                Condition("LessThan", "publish_time", 5),
                Condition("In", "host", ["h"]),
            ],
            ALL,
        ),
    ],
)
def test_conditions_of_spark_become_filters(conditions: list[Any], filters: list[MessageFilter]) -> None:
    found = make_message_filters(conditions)
    assert len(found) == len(filters)
    assert all(wanted in found for wanted in filters)


def test_many_alternatives_become_a_wider_filter() -> None:
    times = [Condition("EqualTo", "log_time", 10 * number) for number in range(20)]
    assert make_message_filters([reduce(partial(Condition, "Or"), times)]) == ALL
    few = reduce(partial(Condition, "Or"), times[:5])
    assert make_message_filters([few, few]) == [
        MessageFilter(None, 10 * number, 10 * number + 1) for number in range(5)
    ]

"""Filters of messages, and the files that they select."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
from msgq.spark.lake.scan_filters import find_scan_filters
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message

FILES = 12
LOCATION = "lake/messages/date=2026-05-01/size_class=small/0.parquet"


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


def make_plan(*filters: str, location: str = f"file:/{LOCATION}") -> str:
    """Return the part of a plan that describes scans with these filters."""
    scans = [
        f"\n({number}) Scan parquet \nOutput [1]: [endpoint#1]\nBatched: true\n"
        f"Location: InMemoryFileIndex [{location}]\nPartitionFilters: [isnotnull(date#20)]\n"
        f"PushedFilters: [{text}]\nReadSchema: struct<endpoint:string>\n"
        for number, text in enumerate(filters)
    ]
    return "== Physical Plan ==\n" + "\n".join(scans)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", MessageFilter()),
        ("IsNotNull(endpoint), EqualTo(endpoint,a/b)", MessageFilter(frozenset({"a/b"}))),
        ("EqualNullSafe(endpoint,a)", MessageFilter(frozenset({"a"}))),
        ("In(endpoint, [a,b,c])", MessageFilter(frozenset("abc"))),
        ("In(endpoint, [a,b]), EqualTo(endpoint,b)", MessageFilter(frozenset("b"))),
        ("LessThan(log_time,5)", MessageFilter(end_time=5)),
        ("LessThanOrEqual(log_time,5)", MessageFilter(end_time=6)),
        ("GreaterThan(log_time,5)", MessageFilter(start_time=6)),
        ("GreaterThanOrEqual(log_time,5), LessThan(log_time,9)", MessageFilter(None, 5, 9)),
        ("EqualTo(log_time,5), GreaterThan(log_time,-3)", MessageFilter(None, 5, 6)),
        ("Or(EqualTo(endpoint,a),GreaterThan(log_time,5))", MessageFilter()),
        ("Not(EqualTo(endpoint,a)), LessThan(log_time,5)", MessageFilter(end_time=5)),
        ("StringStartsWith(endpoint,a), LessThan(log_time,5)", MessageFilter(end_time=5)),
        ("EqualTo(run,a), GreaterThan(publish_time,5), IsNull(log_time)", MessageFilter()),
        ("EqualTo(endpoint,a,b)", MessageFilter()),
        ("EqualTo(endpoint,), LessThan(log_time,5)", MessageFilter()),
        ("In(endpoint, [a,]), LessThan(log_time,5)", MessageFilter()),
        ("EqualTo(endpoint,unknown), LessThan(log_time,5)", MessageFilter()),
        ("EqualTo(run,unknown), LessThan(log_time,5)", MessageFilter()),
        ("EqualTo(endpoint,a b)", MessageFilter()),
        ("EqualTo(endpoint,a)), LessThan(log_time,5)", MessageFilter()),
        ("EqualTo(endpoint,a", MessageFilter()),
    ],
)
def test_message_filter_is_made_from_filters_in_spark_plan(text: str, wanted: MessageFilter) -> None:
    assert find_scan_filters("SELECT 'a', 'b', 'c', 'a/b'", make_plan(text), LOCATION) == [wanted]


def test_each_scan_of_plan_has_its_filter() -> None:
    plan = make_plan("EqualTo(endpoint,a)", "LessThan(log_time,5)")
    assert find_scan_filters("SELECT 'a'", plan, LOCATION) == [MessageFilter(frozenset("a")), MessageFilter(end_time=5)]


@pytest.mark.parametrize("literal", ["'a,b'", "'a), LessThan(log_time,5'", "''", "'a\\'b'", '"a[b"', "'a\nb'"])
def test_literal_that_could_be_misread_disables_pruning(literal: str) -> None:
    query = f"SELECT * FROM messages WHERE endpoint = {literal}"
    assert find_scan_filters(query, make_plan("EqualTo(endpoint,a)"), LOCATION) is None


@pytest.mark.parametrize(
    "plan", ["", "Error", make_plan("EqualTo(endpoint,a)", location="file:/other"), make_plan("") + LOCATION]
)
def test_plan_without_recognised_scans_disables_pruning(plan: str) -> None:
    assert find_scan_filters("SELECT 1", plan, LOCATION) is None

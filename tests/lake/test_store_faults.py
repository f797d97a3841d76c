"""Faults of an S3 server, and writers at the same time: the lake stays whole, and each message is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from itertools import cycle
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("moto")
pytest.importorskip("pyspark")
from msgq.errors import RecordingError
from msgq.lake.aggregate_store import RANGES_TABLE
from msgq.lake.delta_table import CommitConflictError, LakeTable
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.gold.gold_files import GOLD_TABLE_SCHEMAS
from msgq.lake.lake_directory import LakeDirectory
from tests.lake.rows import sorted_rows
from tests.lake.store_lakes import StoreLake, list_messages, write_recording
from tests.object_store import ObjectStore
from tests.store_proxy import BUSY, EXPIRED, LOST_REQUEST, LOST_RESPONSE, SLOW, TORN_RESPONSE, StoreProxy

_CI_STEPS = 7  # ingests with a fault in `make ci`
pytestmark = pytest.mark.xdist_group("object store")


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[StoreProxy]:
    with StoreProxy(s3_endpoint) as proxy:
        yield proxy


def assert_whole(lake: StoreLake) -> None:
    """Assert that a lake has the messages of `write_recording` once, and their aggregates once."""
    assert lake.read_messages() == list_messages(0, 10)
    ranges = lake.bronze.read_aggregates().read_rows(RANGES_TABLE)
    assert pc.sum(ranges.column("row_count")).as_py() == 20


def ingest_with_fault(lake: StoreLake, proxy: StoreProxy, recording: Path, choose_fault: Callable[[int], str]) -> int:
    """Ingest while the store fails, check the lake, repeat the ingest, and return the number of requests."""
    proxy.inject(choose_fault)
    failed = False
    try:
        lake.ingest([recording])
    except RecordingError:
        failed = True
    count = len(proxy.requests)
    proxy.inject(lambda _: "")
    again = StoreLake(lake.url, lake.options)
    assert again.read_messages() in ([], list_messages(0, 10)), "a reader sees all messages or none"
    if not failed:
        assert_whole(again)
    again.ingest([recording])
    assert_whole(again)
    return count


def count_requests(store: ObjectStore, proxy: StoreProxy, recording: Path) -> int:
    proxy.inject(lambda _: "")
    StoreLake(f"{store.url}/first", _options(store, proxy)).ingest([recording])
    return len(proxy.requests)


def _options(store: ObjectStore, proxy: StoreProxy) -> dict[str, str]:
    return store.options | {"AWS_ENDPOINT_URL": proxy.endpoint}


def ingest_at_requests(
    choices: Callable[[int], Iterable[tuple[str, int]]], store: ObjectStore, proxy: StoreProxy, recording: Path
) -> None:
    """Let the store fail at requests of ingests. `choices`: returns faults and requests for a number of requests."""
    total = count_requests(store, proxy, recording)
    assert total > 50
    for fault, place in choices(total):
        lake = StoreLake(f"{store.url}/{fault.replace(' ', '-')}-{place}", _options(store, proxy))

        def choose_fault(number: int, fault: str = fault, place: int = place) -> str:
            return fault if number == place or (fault == EXPIRED and number > place) else ""

        assert ingest_with_fault(lake, proxy, recording, choose_fault) > place


_FAULTS = (LOST_REQUEST, LOST_RESPONSE, TORN_RESPONSE, EXPIRED)


def test_ingest_survives_faults_of_store_at_some_requests(
    object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    def choose(total: int) -> Iterable[tuple[str, int]]:
        return zip(cycle(_FAULTS), range(total // 30, total, total // _CI_STEPS), strict=False)

    ingest_at_requests(choose, object_store, proxy, write_recording(tmp_path / "1.mcap"))


@pytest.mark.nightly
@pytest.mark.watchdog(3000)
@pytest.mark.parametrize("fault", _FAULTS)
def test_ingest_survives_fault_of_store_at_each_request(
    fault: str, object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    def choose(total: int) -> Iterable[tuple[str, int]]:
        return ((fault, place) for place in range(total))

    ingest_at_requests(choose, object_store, proxy, write_recording(tmp_path / "1.mcap"))


@pytest.mark.nightly  # the repeats of a busy store take a minute
@pytest.mark.parametrize("fault", [BUSY, SLOW])
def test_ingest_succeeds_in_busy_or_slow_store(
    fault: str, object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    lake = StoreLake(f"{object_store.url}/lake", _options(object_store, proxy))
    proxy.inject(lambda number: fault if fault == SLOW or number % 4 in (1, 2) else "")
    assert lake.ingest([write_recording(tmp_path / "1.mcap")]) == 20
    proxy.inject(lambda _: "")
    assert_whole(lake)


def test_expired_token_is_an_error_that_says_what_to_do(
    object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    lake = StoreLake(f"{object_store.url}/lake", _options(object_store, proxy))
    proxy.inject(lambda _: EXPIRED)
    with pytest.raises(RecordingError, match="expired") as caught:
        lake.ingest([write_recording(tmp_path / "1.mcap")])
    assert "\n" not in str(caught.value)


# ---- writers at the same time ----


class _CreatingProxy(StoreProxy):
    """Passes the first log entries of two writers on when both have come."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._both = Barrier(2)

    def pass_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        if method == "PUT" and path.endswith(f"{0:020}.json"):
            self._both.wait(60)
        return super().pass_on(method, path, body, headers)


def test_second_of_two_creations_of_a_table_at_once_is_a_conflict(object_store: ObjectStore) -> None:
    columns, results = pa.schema([("number", pa.int64())]), list[str]()

    def create(number: int) -> None:
        table = LakeTable(LakeDirectory(f"{object_store.url}/lake", _options(object_store, creating)), "numbers")
        file = table.write_file(f"{number}.parquet", pa.table({"number": [number]}, columns))
        try:
            table.commit_files(None, columns, [file])
            results.append(file.path)
        except CommitConflictError:
            results.append("conflict")

    with _CreatingProxy(object_store.endpoint) as creating:
        threads = [Thread(target=create, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        snapshot = LakeTable(LakeDirectory(f"{object_store.url}/lake", object_store.options), "numbers").read_snapshot()
    assert snapshot is not None
    assert sorted(results) == sorted([*snapshot.paths, "conflict"])
    assert snapshot.version == 0


class _Together:
    """Lets the first commits of two threads to a table begin at the same time, and counts conflicts."""

    def __init__(self, place: str) -> None:
        self._place, self._barrier, self.conflicts = place, Barrier(2), 0

    def run(self, *functions: Callable[[], Any]) -> None:
        """Call functions in threads, and raise the first error."""
        errors: list[Exception] = []

        def call(function: Callable[[], Any]) -> None:
            try:
                function()
            except Exception as error:
                errors.append(error)
                self._barrier.abort()

        threads = [Thread(target=call, args=(function,)) for function in functions]
        with patch.object(LakeTable, "commit_files", self._make_commit()):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def _make_commit(self) -> Callable[..., None]:
        commit, waited = LakeTable.commit_files, set[int]()

        def commit_together(table: LakeTable, *arguments: Any, **options: Any) -> None:
            if table.place == self._place and id(table) not in waited:
                waited.add(id(table))
                with suppress(BrokenBarrierError):
                    self._barrier.wait(60)
            try:
                commit(table, *arguments, **options)
            except CommitConflictError:
                self.conflicts += table.place == self._place
                raise

        return commit_together


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    return [write_recording(tmp_path / f"{number}.mcap", 10 * number) for number in range(3)]


def _open(store: ObjectStore) -> StoreLake:
    return StoreLake(f"{store.url}/lake", store.options)


def test_two_ingests_at_once_lose_and_double_nothing(object_store: ObjectStore, recordings: list[Path]) -> None:
    first, second, together = _open(object_store), _open(object_store), _Together("messages")
    first.ingest(recordings[:1])
    second.bronze.table.read_snapshot()
    together.run(lambda: first.ingest(recordings[1:2]), lambda: second.ingest(recordings[2:]))
    assert together.conflicts == 1
    lake = _open(object_store)
    assert lake.read_messages() == list_messages(0, 30)
    ranges = lake.bronze.read_aggregates().read_rows(RANGES_TABLE)
    assert pc.sum(ranges.column("row_count")).as_py() == 60
    assert lake.ingest(recordings) == 0


def test_two_ingests_create_one_lake(object_store: ObjectStore, recordings: list[Path]) -> None:
    first, second, together = _open(object_store), _open(object_store), _Together("messages")
    together.run(lambda: first.ingest(recordings[1:2]), lambda: second.ingest(recordings[2:]))
    assert together.conflicts >= 1
    assert _open(object_store).read_messages() == list_messages(10, 30)


def test_ingest_and_optimize_at_once_lose_and_double_nothing(object_store: ObjectStore, recordings: list[Path]) -> None:
    first, second, together = _open(object_store), _open(object_store), _Together("messages")
    for recording in recordings[:2]:
        first.ingest([recording])
    together.run(lambda: first.ingest(recordings[2:]), second.bronze.optimize)
    assert together.conflicts == 1
    lake = _open(object_store)
    assert lake.read_messages() == list_messages(0, 30)
    ranges = lake.bronze.read_aggregates().read_rows(RANGES_TABLE)
    assert pc.sum(ranges.column("row_count")).as_py() == 60


def _read_gold(lake: StoreLake) -> dict[str, list[tuple[Any, ...]]]:
    found = {}
    for name in GOLD_TABLE_NAMES:
        table = lake.gold.get_table(name)
        snapshot = None if table is None else table.read_snapshot()
        assert snapshot is not None
        found[name] = sorted_rows(snapshot.read_rows())
    return found


def test_two_updates_of_gold_at_once_give_the_rows_of_one(
    object_store: ObjectStore, recordings: list[Path], tmp_path: Path
) -> None:
    first, second, together = (
        _open(object_store),
        _open(object_store),
        _Together(f"gold/{next(iter(GOLD_TABLE_SCHEMAS))}"),
    )
    first.ingest(recordings)
    together.run(first.build_gold, second.build_gold)
    assert together.conflicts >= 1
    local = StoreLake(f"file://{tmp_path}/lake")
    local.ingest(recordings)
    local.build_gold()
    assert _read_gold(_open(object_store)) == _read_gold(local)

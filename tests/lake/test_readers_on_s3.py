"""Other libraries read a lake and a recording in an object store."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem, copy_files

pytest.importorskip("deltalake")
from deltalake import DeltaTable
from mcap.reader import make_reader

from msgq.common.storage.file_systems import open_file_system
from msgq.lake.delta_table import LakeTable
from tests.lake.bronze_rows import MIDNIGHT, SECOND
from tests.lake.local_lake import LocalLake, make_rows
from tests.lake.rows import sorted_rows
from tests.object_store import ObjectStore
from tests.spark.kind_logs import RecordedMessage, write_kinds

pytestmark = pytest.mark.ci
SILVER = "silver/struct-Wide"


@pytest.fixture(scope="module")
def local_lake(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """A lake on the disk."""
    lake = LocalLake(tmp_path_factory.mktemp("local") / "lake")
    lake.ingest(*make_rows(1))
    lake.build()
    return lake


@dataclass(frozen=True)
class Tables:
    """A lake on the disk, and its copy in an object store."""

    lake: LocalLake
    store: ObjectStore

    def places(self) -> list[str]:
        [wide] = self.lake.path.glob(f"{SILVER}*")
        return ["messages", "gold/endpoints", "gold/latency_summary", f"silver/{wide.name}"]

    def rows(self, place: str) -> pa.Table:
        snapshot = LakeTable(self.lake.directory, place).read_snapshot()
        assert snapshot is not None
        return snapshot.read_rows()

    def open(self, place: str) -> DeltaTable:
        return DeltaTable(f"{self.store.url}/lake/{place}", storage_options=self.store.options)


@pytest.fixture
def tables(local_lake: LocalLake, object_store: ObjectStore) -> Tables:
    files, path = open_file_system(f"{object_store.url}/lake", object_store.options)
    copy_files(str(local_lake.path), path, LocalFileSystem(), files)
    return Tables(local_lake, object_store)


def test_deltalake_reads_lake_in_object_store(tables: Tables) -> None:
    for place in tables.places():
        rows = pa.table(tables.open(place).to_pyarrow_table())
        assert sorted_rows(rows) == sorted_rows(tables.rows(place))


def test_pandas_reads_lake_in_object_store(tables: Tables) -> None:
    pytest.importorskip("pandas")
    found = tables.open("messages").to_pandas(columns=["endpoint", "log_time", "data"])
    expected = tables.rows("messages")
    assert sorted(found.groupby("endpoint").size().items()) == sorted(
        (row["values"], row["counts"]) for row in expected.column("endpoint").value_counts().to_pylist()
    )
    assert sorted(found["data"]) == sorted(expected.column("data").to_pylist())


def test_polars_reads_lake_in_object_store(tables: Tables) -> None:
    polars = pytest.importorskip("polars")
    for place in tables.places():
        expected = tables.rows(place)
        frame = polars.scan_delta(f"{tables.store.url}/lake/{place}", storage_options=tables.store.options).collect()
        assert sorted_rows(frame.select(expected.column_names).to_arrow()) == sorted_rows(expected)
    chosen = polars.scan_delta(f"{tables.store.url}/lake/messages", storage_options=tables.store.options)
    wide = chosen.filter(polars.col("endpoint") == "wide").select(polars.len()).collect().item()
    assert wide == 40


def test_duckdb_reads_lake_in_object_store(tables: Tables) -> None:
    """DuckDB reads through datasets of pyarrow, because its own extensions are downloads."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as ducks:
        for number, place in enumerate(tables.places()):
            files, path = open_file_system(f"{tables.store.url}/lake/{place}", tables.store.options)
            ducks.register(
                f"t{number}", tables.open(place).to_pyarrow_dataset(filesystem=SubTreeFileSystem(path, files))
            )
            expected = tables.rows(place)
            found = ducks.sql(f"SELECT * FROM t{number}").to_arrow_table().select(expected.column_names)
            assert sorted_rows(found) == sorted_rows(expected)
        assert ducks.sql("SELECT count(*) FROM t0 WHERE endpoint = 'wide'").fetchall() == [(40,)]


class CountedFile(io.BufferedIOBase):
    """A file of an object store that counts the bytes of its requests."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file, self.read_bytes = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int | None = -1) -> bytes:
        data = bytes(self._file.read(size))
        self.read_bytes += len(data)
        return data


@pytest.fixture
def recording(object_store: ObjectStore, tmp_path: Path) -> Iterator[tuple[CountedFile, int]]:
    """A recording of several chunks in an object store, and its size."""
    rng = random.Random(7)
    messages = [RecordedMessage("gps", n, MIDNIGHT + n * SECOND, rng.randbytes(20_000)) for n in range(250)]
    path = write_kinds(tmp_path / "drive.mcap", messages)
    files, directory = open_file_system(f"{object_store.url}/drives", object_store.options)
    copy_files(str(path), f"{directory}/drive.mcap", LocalFileSystem(), files)
    with files.open_input_file(f"{directory}/drive.mcap") as file:
        yield CountedFile(file), path.stat().st_size


def test_mcap_library_reads_ranges_of_recording_in_object_store(recording: tuple[CountedFile, int]) -> None:
    file, size = recording
    reader = make_reader(cast("IO[bytes]", file))
    summary = reader.get_summary()
    assert summary is not None
    assert summary.statistics is not None
    assert summary.statistics.message_count == 250
    begin = MIDNIGHT + 10 * SECOND
    chosen = reader.iter_messages(["gps"], starting_at=begin, ending_before=begin + 5 * SECOND)
    found = [message.log_time for _, _, message in chosen]
    assert found == [begin + n * SECOND for n in range(5)]
    assert len(summary.chunk_indexes) > 3
    assert file.read_bytes < size / 2, "the reader read more than the summary and a chunk"

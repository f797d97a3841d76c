"""A lake of a release with a journal, and without kinds: it is read as it is, and taken over by who writes first."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from msgq.errors import RecordingError
from msgq.lake.derived import Derived
from msgq.lake.directory import Directory
from msgq.lake.inputs import Inputs
from msgq.lake.old import OldLake, old_schemas
from msgq.lake.parts import messages_table
from msgq.lake.ranges import RANGES
from msgq.lake.schema_ids import schema_id
from msgq.lake.schema_texts import read_schemas, write_schemas
from msgq.spark.lake import Lake
from msgq.spark.lake.gold import NAMES
from tests.recording import logs
from tests.spark.kind_logs import RUN, Said, on_channel, write_kinds
from tests.spark.rows import listed

NEW_COLUMNS = {"kind", "publisher", "key", "options"}
SCHEMA = logs.struct_schema(np.dtype([("n", "<i4")]))


def as_before(root: Path) -> None:
    """Make of a lake what the release with a journal would have left."""
    lake = Directory(root)
    parts = sorted(path for path in (root / "messages").rglob("*.parquet"))
    for part in parts:
        table = pq.ParquetFile(part).read()
        pq.write_table(table.select([name for name in table.column_names if name not in NEW_COLUMNS]), part)
    snapshot = messages_table(lake).snapshot()
    assert snapshot is not None
    ranges, inputs, problems = Derived(lake).ranges(snapshot.files), Inputs(lake).known(), Inputs(lake).problems()
    texts = read_schemas(lake)
    for place in root.iterdir():
        if place.name != "messages":
            shutil.rmtree(place)
    shutil.rmtree(root / "messages" / "_delta_log")
    about = {"inputs": [asdict(one) for one in inputs], "problems": [asdict(one) for one in problems]}
    (root / "_journal").mkdir()
    (root / "_journal" / "lock").touch()
    entry = ranges.replace_schema_metadata({b"msgq": json.dumps(about).encode()})
    pq.write_table(entry, root / "_journal" / "one.parquet")
    (root / "_schemas").mkdir()
    for number, schema in texts.items():
        data = base64.b64encode(schema.data).decode()
        said = {"name": schema.name, "encoding": schema.encodings, "data": data}
        (root / "_schemas" / f"{number}.json").write_text(json.dumps(said))
    for name, state in (("gold", {"done": ["one"], "schemas": {}}), ("silver", {"done": ["one"], "tables": {}})):
        (root / name / "some").mkdir(parents=True)
        (root / name / "_state.json").write_text(json.dumps(state))


@pytest.fixture
def root(spark: Any, tmp_path: Path) -> Path:
    sent = [logs.message(1, i, 1000 + i, b'{"key": %d}' % i) for i in range(5)]
    chunk = logs.chunk(logs.channel(1, "a", encoding="json"), *sent)
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([logs.write(tmp_path / "old.mcap", chunk, chunk[:-7])])

    write_schemas(Directory(lake.uri), [SCHEMA])
    as_before(tmp_path / "lake")
    return tmp_path / "lake"


def assert_old(lake: Lake) -> None:
    columns = ("sequence", "kind", "publisher", "key", "options")
    assert listed(lake.messages(), *columns) == [(i, "topic", None, None, None) for i in range(5)]
    assert [Path(row["file"]).name for row in lake.problems().collect()] == ["old.mcap"]
    assert read_schemas(Directory(lake.uri)) == {schema_id(SCHEMA): SCHEMA}


def test_it_is_read_as_it_is(spark: Any, root: Path) -> None:
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    lake = Lake(spark, root)
    assert_old(lake)
    assert (lake.names(), lake.endpoints()) == ([], [])
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == files


def test_who_writes_first_takes_it_over(spark: Any, root: Path, tmp_path: Path) -> None:
    """Not a message is written anew; its recordings count as read; messages that overlap the old ones count once."""
    lake = Lake(spark, root)
    parts = {path: path.read_bytes() for path in (root / "messages").rglob("*.parquet")}
    again = lake.ingest([tmp_path / "old.mcap"])
    assert (again.messages, again.skipped) == (0, 1)
    assert {path: path.read_bytes() for path in (root / "messages").rglob("*.parquet")} == parts
    assert_old(lake)
    assert not [name for name in ("_journal", "_schemas", "_staged") if (root / name).exists()]
    later = [Said("a", i, 1000 + i, b'{"key": %d}' % i) for i in range(3, 8)]
    write_kinds(tmp_path / "new.mcap", [*later, on_channel("c", "p", 0, 2000)], RUN)
    assert lake.ingest([tmp_path / "new.mcap"]).messages == 4
    assert listed(lake.messages(), "endpoint", "sequence", "kind", "publisher") == [
        *[("a", i, "topic", None) for i in range(8)],
        ("channel/c", 0, "channel", "p"),
    ]
    lake.decode()
    assert listed(lake.silver("a"), "sequence", "key") == [(i, i) for i in range(5)]
    assert lake.refresh() == 1
    assert set(lake.names()) == set(NAMES)
    assert listed(lake.table("endpoints"), "endpoint", "kind", "messages") == [
        ("a", "topic", 8),
        ("channel/c", "channel", 1),
    ]
    assert lake.refresh() == 0


@pytest.mark.nightly
def test_its_tables_are_made_anew_without_a_new_message(spark: Any, root: Path) -> None:
    lake = Lake(spark, root)
    assert lake.refresh() == 1
    assert listed(lake.table("endpoints"), "endpoint", "kind", "overwritten") == [("a", "topic", 0)]
    assert lake.refresh() == 0
    assert_old(lake)


@pytest.mark.nightly
def test_parts_that_a_kill_left_on_their_way_are_of_the_lake(spark: Any, root: Path) -> None:
    """An entry of the journal says that they are; their release would have moved them when it wrote next."""
    (part,) = (root / "messages").rglob("*.parquet")
    staged = root / "_staged" / "one" / part.relative_to(root / "messages")
    staged.parent.mkdir(parents=True)
    part.rename(staged)
    lake = Lake(spark, root)
    assert lake.messages().count() == 0
    lake.refresh()
    assert_old(lake)


def test_a_lake_of_another_format_is_refused(spark: Any, root: Path) -> None:
    about = pq.read_schema(root / "_journal" / "one.parquet").metadata
    rows = [{"run": "r", "rows": 5, "repeats": False}]

    pq.write_table(pa.Table.from_pylist(rows, RANGES).replace_schema_metadata(about), root / "_journal" / "one.parquet")
    with pytest.raises(RecordingError, match="another format than Parquet"):
        Lake(spark, root).messages()
    with pytest.raises(RecordingError, match="another format than Parquet"):
        Lake(spark, root).refresh()


@pytest.mark.parametrize("torn", ["_journal/one.parquet", "_schemas/*.json"])
def test_a_torn_entry_is_named_with_what_to_do(tmp_path: Path, torn: str) -> None:
    (tmp_path / "_journal").mkdir()
    (tmp_path / "_schemas").mkdir()
    (tmp_path / "_schemas" / "7.json").touch()
    (tmp_path / torn.replace("*", "7")).touch()
    lake = Directory(tmp_path)
    with pytest.raises(RecordingError, match=r"(one\.parquet|7\.json) is torn.* remove it"):
        old_schemas(lake) if "schemas" in torn else OldLake(lake).parts()

"""Files of messages and texts of schemas in a lake, as workers write them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from msgq.schema import Schema
from msgq.spark.lake.bronze import COLUMNS
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.message_files import write_parts
from msgq.spark.lake.schema_texts import known_schema_ids, read_schemas, write_schemas
from msgq.spark.source.arrow_batches import schema_id
from tests.spark.rows import message

DAY = 86_400 * 10**9


def test_parts_are_by_date_and_size_and_their_ranges_say_what_is_in_them(tmp_path: Path) -> None:
    sent = [message("b", 1, DAY + 5), message("a", 2, 7), message("a", 1, 3), message("a", 1, 3)]
    sent.append(message("a", 3, 9, data=bytes(64 << 10)))
    rows = pa.RecordBatch.from_pylist([{"origin_time": None, "schema_id": None, **one} for one in sent], COLUMNS)
    (ranges,) = write_parts([rows], f"file://{tmp_path}")
    found = {row["part"].rpartition("/")[0]: row for row in ranges.to_pylist()}
    small, large = found["date=1970-01-01/class=small"], found["date=1970-01-01/class=large"]
    assert len(found) == 3
    assert (small["endpoint"], small["rows"], small["repeats"]) == ("a", 3, True)
    assert (small["first_sequence"], small["last_sequence"], small["first_time"], small["last_time"]) == (1, 2, 3, 7)
    assert (large["rows"], large["first_time"], large["repeats"]) == (1, 9, False)
    assert found["date=1970-01-02/class=small"]["endpoint"] == "b"
    assert pq.read_table(tmp_path / small["part"])["log_time"].to_pylist() == [3, 3, 7]


def test_texts_of_schemas_are_there_once_by_their_number(tmp_path: Path) -> None:
    lake = Directory(f"file://{tmp_path}")
    schemas = [Schema("Gps", "struct", b'"<i4"'), Schema("Imu", "jsonschema", b"{}")]
    write_schemas(lake, [*schemas, None, Schema("Text", "json", b""), schemas[0]])
    assert known_schema_ids(lake) == set(map(schema_id, schemas))
    assert {(text.name, text.encoding, text.data) for text in read_schemas(lake).values()} == {
        (schema.name, schema.encoding, schema.data) for schema in schemas
    }

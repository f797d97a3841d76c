"""Names of tables and columns that work without quotes in Spark, DuckDB and Polars, and as attributes in Python."""

from __future__ import annotations

import keyword

import pytest

pytest.importorskip("deltalake")
import pyarrow as pa

from msgq.lake import message_columns, schema_texts
from msgq.lake.bronze import duplicate_messages, ingest_log, row_group_ranges
from msgq.lake.gold import gold_tables as gold
from msgq.lake.metrics import partial_aggregates
from msgq.lake.silver import silver_decoder as decoder
from msgq.lake.silver import silver_writer as writer

#: Reserved by Spark in ANSI mode, from its page "ANSI Compliance".
_SPARK_WORDS = (
    "all and anti any as authorization both case cast check collate column constraint create cross current_date "
    "current_time current_timestamp current_user distinct else end escape except false fetch filter for foreign from "
    "full grant group having in inner intersect into is join lateral leading left minus natural not null offset on "
    "only or order outer overlaps primary references right select semi session_user some sql table then time to "
    "trailing union unique unknown user using when where with within "
)
SPARK = frozenset(_SPARK_WORDS.split())
#: Reserved by DuckDB, or a type or function without quotes: `duckdb_keywords()`.
_DUCKDB_WORDS = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create "
    "default deferrable desc describe distinct do else end except false fetch for foreign from group having in "
    "initially intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer "
    "pivot_wider placing primary qualify references returning select show some summarize symmetric table then to "
    "trailing true union unique unpivot using variadic when where window with anti asof at authorization binary "
    "collation concurrently cross freeze full generated glob ilike inner is isnull join left like natural notnull "
    "outer overlaps positional right semi similar tablesample try_cast unpack verbose between bigint bit boolean char "
    "character coalesce columns dec decimal exists extract float grouping_id int integer interval map national nchar "
    "none nullif numeric out overlay position precision real row setof smallint struct substring time timestamp treat "
    "trim values varchar xmlattributes "
)
DUCKDB = frozenset(_DUCKDB_WORDS.split())
#: Names of statistics that data frames have as methods, too: df["count"].
METHODS = {"count", "index", "max", "min", "schema", "size"}
SCHEMAS: list[pa.Schema] = [
    *(
        message_columns.BRONZE_COLUMNS,
        message_columns.OPTIONAL_COLUMNS,
        ingest_log._INGESTED_FILES_SCHEMA,
        ingest_log._READ_ERRORS_SCHEMA,
        row_group_ranges.RANGES_SCHEMA,
        duplicate_messages.MESSAGE_KEYS_SCHEMA,
    ),
    *(
        schema_texts._SCHEMA_TEXTS_SCHEMA,
        writer.MANIFEST_SCHEMA,
        decoder.SILVER_FIXED_COLUMNS,
        decoder.DECODE_ERRORS_SCHEMA,
    ),
    *(*gold.HOURLY_SCHEMAS.values(), *gold.RUN_SCHEMAS.values(), *partial_aggregates.AGGREGATE_SCHEMAS.values()),
]
TABLES = {
    *("messages", "silver_manifest", "decode_errors", "read_errors", "ingested_files", "schemas", "ranges"),
    *(*gold.HOURLY_SCHEMAS, *gold.RUN_SCHEMAS, *partial_aggregates.AGGREGATE_SCHEMAS),
}
NAMES = {field.name for schema in SCHEMAS for field in schema} | TABLES


def test_lake_column_names_are_not_reserved_sql_words() -> None:
    assert not {name for name in NAMES if not name.isidentifier() or name != name.lower()}
    assert not NAMES & (SPARK | DUCKDB)
    assert not {name for name in NAMES if keyword.iskeyword(name) or keyword.issoftkeyword(name)}


def test_lake_column_names_are_not_data_frame_attributes() -> None:
    found = set()
    for library in ("pandas", "polars"):
        found |= NAMES & set(dir(pytest.importorskip(library).DataFrame))
    assert found <= METHODS


@pytest.mark.ci
def test_lake_column_names_are_usable_in_installed_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    assert not NAMES & {name for (name,) in duckdb.sql(query).fetchall()}
    columns_of = ", ".join(f"1 AS {name}" for name in sorted(NAMES))
    duckdb.sql(f"CREATE TABLE traffic_windows AS SELECT {columns_of}")
    assert duckdb.sql(f"SELECT {', '.join(sorted(NAMES))} FROM traffic_windows").fetchall() == [(1,) * len(NAMES)]

"""Names of tables and columns work without quotes where Spark reserves all words of the standard."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import DataFrame

from msgq.lake.message_columns import MESSAGE_COLUMNS, READ_ERRORS_SCHEMA
from msgq.lake.timestamp_columns import _TIME_COLUMNS, list_timestamp_columns
from tests.unit.test_sql_names import METHODS, NAMES

ENFORCE = "spark.sql.ansi.enforceReservedKeywords"
OF_SPARK = {*list_timestamp_columns(_TIME_COLUMNS), *MESSAGE_COLUMNS.names, *READ_ERRORS_SCHEMA.names, "age"}


def test_column_names_differ_from_data_frame_attributes() -> None:
    assert (NAMES | OF_SPARK) & set(dir(DataFrame)) <= METHODS


def test_column_names_need_no_quotes(spark: Any) -> None:
    names = sorted(NAMES | OF_SPARK)
    spark.conf.set(ENFORCE, "true")
    try:
        reserved = {word for word, is_reserved in spark.sql("FROM sql_keywords()").collect() if is_reserved}
        assert not {name.upper() for name in names} & reserved
        rows = ", ".join(f"1 AS {name}" for name in names)
        query = f"SELECT {', '.join(names)} FROM (SELECT {rows}) AS traffic_windows WHERE window_start = 1"
        assert spark.sql(query).collect() == [(1,) * len(names)]
    finally:
        spark.conf.unset(ENFORCE)

"""Duplicate messages of bronze."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.lake.bronze.duplicate_messages import MESSAGE_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def find_duplicates(keys: DataFrame) -> DataFrame:
    """Return the duplicate rows to omit, so that each message occurs once.

    Input: `MESSAGE_KEYS_SCHEMA` of msgq.lake.bronze. Output: file_number, row_number of rows that are not committed and
    whose message is in another row: a committed row, or an earlier row in the order of file_number and row_number.
    Spark shuffles by `MESSAGE_KEY`, without payloads.
    """
    copies = Window.partitionBy(*MESSAGE_KEY, "identity").orderBy(
        F.col("is_committed").desc(), "file_number", "row_number"
    )
    ranked = keys.withColumn("_copy", F.row_number().over(copies))
    return ranked.where(~F.col("is_committed") & (F.col("_copy") > 1)).select("file_number", "row_number")


def make_payload_size_column(messages: DataFrame) -> Column:
    """Return the size of payloads, from the column `size_bytes` of a lake if present, so that payloads are not read."""
    return F.col("size_bytes") if "size_bytes" in messages.columns else F.octet_length("data")

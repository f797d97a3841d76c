"""Pictures among the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.lake.metrics.images import COMPRESSED_IMAGE_SCHEMA, IMAGE_MAGICS, RAW_IMAGE_SCHEMA
from msgq.spark.tables.duplicates import make_payload_size_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _make_picture_format_column() -> Column:
    kind = F.when(F.col("schema") == COMPRESSED_IMAGE_SCHEMA, "jpeg").when(F.col("schema") == RAW_IMAGE_SCHEMA, "raw")
    for name, magic in IMAGE_MAGICS.items():
        kind = F.when(F.startswith(F.col("data"), F.lit(magic)), F.lit(name)).otherwise(kind)
    return kind


def frames(messages: DataFrame) -> DataFrame:
    """Return references to the messages that are pictures: JPEG, PNG, or ROS 2's Image in CDR.

    Input: messages. Output: run, endpoint, epoch, sequence, log_time: reference to the message; format: "jpeg", "png"
    or "raw"; size_bytes.
    """
    kind = F.col("picture") if "picture" in messages.columns else _make_picture_format_column()
    return (
        messages.withColumn("format", kind)
        .where(F.col("format").isNotNull())
        .select(
            "run",
            "endpoint",
            "epoch",
            "sequence",
            "log_time",
            "format",
            make_payload_size_column(messages).alias("size_bytes"),
        )
    )

"""Whether a session is a client of Spark Connect, which has no Java of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect_client(spark: SparkSession) -> bool:
    """Return True for a client of Spark Connect."""
    return getattr(spark, "_jsc", None) is None

"""Number of cores of a session, on this machine or on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count_cores(spark: SparkSession) -> int:
    """Return the number of tasks that Spark can run now at the same time. A cluster may grow later."""
    if getattr(spark, "_jsc", None):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F

    numbers = spark.range(1 << 16).select(F.spark_partition_id().alias("task"))  # a table of a server has so many parts
    return max(1, numbers.distinct().count())

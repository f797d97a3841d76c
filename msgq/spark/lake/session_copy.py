"""Copies of a classic Spark session, with the views, settings and functions of the session.

pyspark has no interface for copies. The module uses the classes of Spark 4 on the Java side.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession


def copy_session(spark: SparkSession) -> SparkSession:
    """Return a copy. Later changes of views and settings in one session do not affect the other session."""
    java: Any = spark._jsparkSession
    return SparkSession(spark.sparkContext, java.cloneSession())


def move_frame(rows: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the rows of a data frame as a data frame of another session."""
    jvm: Any = spark._jvm
    plan = rows._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)

"""Builds fleet tables on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgq.lake.fleet.fleet_builder import FleetBuilder, FleetResult
from msgq.spark.runtime.spark_errors import translate_spark_errors
from msgq.spark.spark_executor import SparkExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@translate_spark_errors()
def build_fleet(
    spark: SparkSession,
    fleet: str | os.PathLike[str],
    lakes: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    remove_missing: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> FleetResult:
    """Copy the gold tables of many lakes into the fleet tables of a directory, if the gold of a lake has changed.

    Args:
        spark: Spark session. The workers must see the directory and the lakes.
        fleet: directory or URL of the fleet tables, which may not exist yet.
        lakes: directories, patterns such as `lakes/date=*/host=*`, or URLs, which can be patterns, too; or one of them.
        remove_missing: remove the rows of all lakes that no longer exist.
        storage_options: credentials and settings for the URLs of the fleet tables and of the lakes.

    Raises:
        InvalidValueError: no directory matches, or `fleet` is a lake.
        RecordingError: a table cannot be written.
    """
    return FleetBuilder(fleet, SparkExecutor(spark), storage_options).build_fleet(lakes, remove_missing)

"""Complete pipeline from a recording to a report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.spark.lake import Lake
from msgq.spark.runtime.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_pipeline(
    recording: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    report_path: str | os.PathLike[str],
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Ingest a recording, build all tables, and write the report.

    Args:
        recording: path of a file or directory.
        lake: directory or URL of the lake, new or existing.
        report_path: path of the page. An existing page is replaced.
        spark: Spark session; None creates a session.
        storage_options: credentials and settings of the lake's object store; see `Lake`.

    Returns:
        The totals of the report, and "messages", the number of messages new in the lake.
    """
    opened = Lake(spark or session(), lake, storage_options=storage_options)
    ingested = opened.ingest([recording])
    opened.build_silver()
    opened.build_gold()
    replay_command = ["msgq", "play", os.path.abspath(recording)]
    tables = open_lake_tables(opened.uri, storage_options)
    summary = write_report(tables, Path(report_path), replay_command=replay_command)
    return {"messages": ingested.messages, **summary}

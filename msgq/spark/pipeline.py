"""All the way from a recording to a page: ingest, gold, page."""

from __future__ import annotations

import os
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
) -> dict[str, Any]:
    """Ingest a recording, make all tables, and write the report.

    Parameters
    ----------
    recording : a file or directory.
    lake : may exist.
    report_path : of the page, written anew.
    spark : None makes a session.

    Returns
    -------
    The figures of the report, and "messages": how many are new in the lake.
    """
    opened = Lake(spark or session(), lake)
    ingested = opened.ingest([recording])
    opened.build_silver()
    opened.build_gold()
    return {"messages": ingested.messages, **write_report(open_lake_tables(opened.uri), Path(report_path))}

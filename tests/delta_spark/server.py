"""Runs SQL of its standard input in a session with delta-spark, in an environment of its own that has no msgq.

A line of the input is a query as JSON: [query, path]. The rows of the result go to Parquet at the path, if it is not
null. A line of the output is the answer as JSON: the rows, as dictionaries, or {"error": text}.

Usage: `server.py DIRECTORY JARS`. The directory is Spark's place for warehouse and temporary files.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def start_session(directory: str, jars: str) -> SparkSession:
    settings: dict[str, Any] = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={directory}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # allows VACUUM ... RETAIN 0 HOURS
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # the compilation takes longer than queries of so few rows
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # tasks of VACUUM, 10,000 by default
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()


def run_query(spark: SparkSession, query: str, path: str | None) -> list[Any]:
    rows = spark.sql(query)
    if path is None:
        return [json.loads(str(row)) for row in rows.toJSON().collect()]
    rows.coalesce(1).write.parquet(path)
    return []


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # VACUUM writes to the standard output of Java
    spark = start_session(*sys.argv[1:])
    print(json.dumps(spark.version), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer: Any = run_query(spark, *json.loads(line))
        except Exception as error:  # any error of Java or Spark: the test decides
            answer = {"error": str(error)}
        print(json.dumps(answer, default=str), file=answers, flush=True)
    spark.stop()


main()

#!/usr/bin/env bash
# Makes build/delta-spark: an environment with delta-spark, the reference implementation of Delta tables, for the tests in
# tests/delta_spark. It has a Spark of its own, because delta-spark does not support the newest Spark yet.
set -euo pipefail
cd "$(dirname "$0")/.."
spark=4.2.0 delta=4.4.0
folder=$PWD/build/delta-spark
rm -rf "$folder" && mkdir -p "$folder"
JAVA_HOME=$(.venv/bin/python -c 'from msgq.spark.runtime.java import find_java; print(find_java().home_path)')
export JAVA_HOME
.venv/bin/python -m venv "$folder"/venv
"$folder"/venv/bin/python -m pip install --quiet --no-compile pyspark==$spark
"$folder"/venv/bin/python - > "$folder"/spark.log 2>&1 << END || { tail -n 20 "$folder"/spark.log; exit 1; }
from pyspark.sql import SparkSession

packages = {"spark.jars.packages": "io.delta:delta-spark_${spark%.*}_2.13:$delta", "spark.jars.ivy": "$folder/ivy"}
SparkSession.builder.master("local[1]").config(map=packages).getOrCreate().stop()
END
echo "Spark $spark, delta-spark $delta" | tee "$folder"/ready

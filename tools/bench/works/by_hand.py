"""Recording to gold as an engineer would write it by hand, without the lake of msgq.

`make_by_spark` makes few tables on plain Spark. `make_by_duckdb` makes the tables that the lake makes of topics, with
pyarrow and DuckDB. Neither of them removes duplicate messages, and no commit protects their tables.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MESSAGES = pa.schema(
    [
        ("endpoint", pa.string()),
        ("sequence", pa.int64()),
        ("publish_time", pa.int64()),
        ("log_time", pa.int64()),
        ("data", pa.binary()),
    ]
)
_MESSAGES_OF_SPARK = "endpoint string, sequence long, publish_time long, log_time long, data binary"
#: Tables of `make_by_spark`, of the table `messages`.
_TABLES_OF_SPARK = {
    "rates": """
        SELECT endpoint, log_time DIV 1000000000 AS second, count(*) AS messages, sum(length(data)) AS bytes
        FROM messages GROUP BY endpoint, log_time DIV 1000000000""",
    "latencies": """
        SELECT endpoint, max(log_time - publish_time) AS largest,
            percentile_approx(log_time - publish_time, array(0.5, 0.9, 0.99)) AS percentiles
        FROM messages GROUP BY endpoint""",
    "losses": """
        SELECT endpoint, sum(sequence - before - 1) AS lost FROM (
            SELECT endpoint, sequence, lag(sequence) OVER (PARTITION BY endpoint ORDER BY sequence) AS before
            FROM messages) GROUP BY endpoint""",
}

Reader = Callable[[str], Iterator[pa.RecordBatch]]


def make_by_spark(spark: Any, read: Reader, folder: Path, recording: Path) -> None:
    """Make a table of messages and tables of rates, latencies and losses."""
    paths = [(str(path),) for path in sorted(recording.rglob("*.mcap"))]
    files = spark.createDataFrame(paths, "path string").repartition(len(paths))
    messages = files.mapInArrow(partial(_read_files, read=read), _MESSAGES_OF_SPARK)
    messages.write.option("compression", "zstd").parquet(str(folder / "messages"))
    spark.read.parquet(str(folder / "messages")).createOrReplaceTempView("messages")
    for name, query in _TABLES_OF_SPARK.items():
        spark.sql(query).coalesce(1).write.parquet(str(folder / name))


def _read_files(paths: Iterable[pa.RecordBatch], read: Reader) -> Iterator[pa.RecordBatch]:
    for batch in paths:
        for path in batch.column("path").to_pylist():
            yield from read(path)


def _read_by_mcap(path: str) -> Iterator[pa.RecordBatch]:
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        rows = (
            (channel.topic, message.sequence, message.publish_time, message.log_time, message.data)
            for _, channel, message in make_reader(file).iter_messages(log_time_order=False)
        )
        while some := list(islice(rows, 20_000)):
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), _MESSAGES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def _read_by_msgq(path: str) -> Iterator[pa.RecordBatch]:
    from msgq.recording import LogReader

    for batch in LogReader(path).batches(_MESSAGES.names):
        yield pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string()), *batch.columns[1:]], schema=_MESSAGES)


SPARK_READERS: dict[str, Reader] = {"by-hand": _read_by_msgq, "by-hand-mcap": _read_by_mcap}


# --------------------------------------------------------------------------------------------------- pyarrow and DuckDB

_COLUMNS = ["endpoint", "epoch", "sequence", "log_time", "publish_time", "data", "origin_time", "kind"]
_CONSTANTS = ["run", "host", "encoding", "schema", "options", "publisher", "key", "size_class"]
_TEXTS = ["endpoint", "kind", *_CONSTANTS]  # with few different values, so that a dictionary makes them small
#: A bucket of the lake's histograms, see docs/reference/lake-tables.md.
_BUCKET = "CASE WHEN age = 0 THEN 0 ELSE sign(age) * (1 + floor(16 * log2(abs(age)))) END::INTEGER"
_AGES = "SELECT *, log_time - publish_time AS age, log_time // 1000000000 * 1000000000 AS window_start FROM messages"
_PERCENTILES = "quantile_cont(age, [0.5, 0.9, 0.99, 0.999]) AS percentiles"
_LATENCY = f"count(*) AS messages, min(age) AS min, max(age) AS max, {_PERCENTILES}"
#: Tables of `make_by_duckdb`. The windows have one second, as in the lake if an endpoint has 64 messages in a second.
_TABLES_OF_DUCKDB = {
    "traffic_windows": f"""
        SELECT endpoint, epoch, window_start, count(*) AS messages, sum(size_bytes) AS size_bytes,
            max(size_bytes) AS max_size_bytes, min(log_time) AS start_time, max(log_time) AS end_time,
            min(age) AS min, max(age) AS max, histogram({_BUCKET}) AS histogram
        FROM ({_AGES}) GROUP BY endpoint, epoch, window_start""",
    "throughput": """
        SELECT endpoint, window_start, sum(messages) AS messages, sum(size_bytes) AS size_bytes
        FROM traffic_windows GROUP BY endpoint, window_start""",
    "latency": f"SELECT endpoint, window_start, {_LATENCY} FROM ({_AGES}) GROUP BY endpoint, window_start",
    "latency_summary": f"SELECT endpoint, {_LATENCY} FROM ({_AGES}) GROUP BY endpoint",
    "sequence_gaps": """
        SELECT endpoint, epoch, previous, sequence, sequence - previous - 1 AS lost, from_time, log_time AS to_time
        FROM (SELECT endpoint, epoch, sequence, log_time, lag(sequence) OVER one AS previous,
                lag(log_time) OVER one AS from_time
            FROM messages WINDOW one AS (PARTITION BY endpoint, epoch ORDER BY sequence))
        WHERE sequence - previous > 1""",
    "dropouts": """
        WITH intervals AS (SELECT endpoint, log_time, log_time - lag(log_time) OVER one AS duration
                FROM messages WINDOW one AS (PARTITION BY endpoint ORDER BY log_time)),
            periods AS (SELECT endpoint, median(duration) AS period FROM intervals GROUP BY endpoint)
        SELECT endpoint, log_time - duration AS from_time, log_time AS to_time, duration AS duration_ns, period
        FROM intervals JOIN periods USING (endpoint) WHERE duration >= greatest(1000000000, 5 * period)""",
    "hops": """
        SELECT parent, endpoint, count(*) AS messages, quantile_cont(hop, [0.5, 0.99]) AS percentiles, max(hop) AS max
        FROM (SELECT endpoint, lag(endpoint) OVER one AS parent, publish_time - lag(publish_time) OVER one AS hop
            FROM messages WHERE origin_time != 0 WINDOW one AS (PARTITION BY origin_time ORDER BY publish_time))
        WHERE parent IS NOT NULL GROUP BY parent, endpoint""",
    "endpoints": """
        SELECT endpoint, sum(messages) AS messages, sum(size_bytes) AS size_bytes, min(start_time) AS start_time,
            max(end_time) AS end_time, count(DISTINCT epoch) AS epochs,
            coalesce((SELECT sum(lost) FROM sequence_gaps AS gap WHERE gap.endpoint = traffic.endpoint), 0) AS lost
        FROM traffic_windows AS traffic GROUP BY endpoint""",
    "checks": """
        SELECT endpoint, percentiles[3] <= 100000000 AS is_fast, min >= 0 AS is_positive FROM latency_summary""",
}


def make_by_duckdb(folder: Path, recording: Path) -> None:
    """Make the tables of the lake for topics: pyarrow writes the messages, and DuckDB computes the other tables."""
    import duckdb

    (folder / "messages").mkdir(parents=True)
    for number, path in enumerate(sorted(recording.rglob("*.mcap"))):
        _write_messages(path, folder / "messages" / f"{number}.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW messages AS FROM read_parquet('{folder}/messages/*.parquet')")
        for name, query in _TABLES_OF_DUCKDB.items():
            connection.execute(f"CREATE TABLE {name} AS {query}")
            connection.execute(f"COPY {name} TO '{folder}/{name}.parquet' (COMPRESSION zstd)")


def _write_messages(path: Path, to: Path) -> None:
    """Write the messages of a file, with columns as in the lake, into a Parquet file."""
    from msgq.recording import LogReader

    writer = None
    for batch in LogReader(path).batches(_COLUMNS):
        rows = _add_columns(pa.Table.from_batches([batch]))
        writer = writer or pq.ParquetWriter(to, rows.schema, compression="zstd", use_dictionary=_TEXTS)
        writer.write_table(rows)
    if writer:
        writer.close()


def _add_columns(rows: pa.Table) -> pa.Table:
    """Return messages with their sizes, dates, and columns that are the same for all."""
    zeros, text = pa.array(np.zeros(len(rows), np.int8)), pa.array(["by hand"])
    for name in _CONSTANTS:
        rows = rows.append_column(name, pa.DictionaryArray.from_arrays(zeros, text))
    rows = rows.append_column("size_bytes", pc.cast(pc.binary_length(rows["data"]), pa.int64()))
    return rows.append_column("date", pc.cast(pc.cast(rows["log_time"], pa.timestamp("ns")), pa.date32(), safe=False))

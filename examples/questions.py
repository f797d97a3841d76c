"""Five questions to a lake, in SQL.

    python examples/questions.py LAKE

Create the lake with `msgq lake ingest LAKE RECORDING`.
"""

# %%
import sys

from msgq.spark import session
from msgq.spark.lake import Lake

QUESTIONS = {
    "Which endpoints lost messages, and what share of them?": """
        SELECT endpoint, sum(lost) AS lost, round(100 * sum(lost) / (sum(lost) + sum(messages)), 3) AS percent
        FROM endpoints GROUP BY endpoint HAVING sum(lost) > 0 ORDER BY lost DESC
    """,
    "Where are the longest dropouts, and of which endpoint?": """
        SELECT endpoint, round(duration_ns / 1e9, 3) AS seconds, timestamp_micros(from_time div 1000) AS since
        FROM dropouts ORDER BY duration_ns DESC LIMIT 10
    """,
    "How large is the latency of each endpoint over all runs?": """
        WITH counts AS (
            SELECT endpoint, bucket, sum(count) AS count
            FROM (SELECT endpoint, inline(histogram) FROM latency_summary) GROUP BY endpoint, bucket
        ), ranks AS (
            SELECT endpoint, sign(bucket) * pow(2, (abs(bucket) - 0.5) / 16) / 1e3 AS us,
                   sum(count) OVER (PARTITION BY endpoint ORDER BY bucket) AS until,
                   sum(count) OVER (PARTITION BY endpoint) AS messages
            FROM counts
        )
        SELECT endpoint, max(messages) AS messages, round(min(us) FILTER (WHERE until >= 0.5 * messages), 1) AS p50_us,
               round(min(us) FILTER (WHERE until >= 0.99 * messages), 1) AS p99_us
        FROM ranks GROUP BY endpoint ORDER BY p99_us DESC
    """,
    "In which minutes was the bus busiest? (A longer window counts in its first minute.)": """
        SELECT timestamp_seconds(window_start div 60000000000 * 60) AS minute, sum(messages) AS messages,
               round(sum(size_bytes) / 1e6, 3) AS megabytes, count(DISTINCT endpoint) AS endpoints
        FROM throughput GROUP BY minute ORDER BY messages DESC LIMIT 5
    """,
    "Which endpoints lost messages in the same second?": """
        SELECT a.endpoint, b.endpoint AS other, count(*) AS times, sum(b.lost) AS lost
        FROM sequence_gaps a JOIN sequence_gaps b ON a.run = b.run AND a.to_time div 1000000000 = b.to_time div
        1000000000
                               AND a.endpoint < b.endpoint
        GROUP BY a.endpoint, b.endpoint ORDER BY times DESC LIMIT 10
    """,
}


# %%
def main(path: str) -> None:
    """Ask all questions, and print the answers."""
    spark = session()
    Lake(spark, path).register()
    for question, sql in QUESTIONS.items():
        print(question)
        spark.sql(sql).show(truncate=False)


# %%
if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

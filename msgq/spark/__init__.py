"""Recordings as tables: Spark sessions, the source "msgq" for batches and streams, and the `Lake`.

Needs the extra `spark`.
"""

from msgq.common.optional import require_extra

require_extra(
    "msgq.spark", "spark", "mcap", "pyarrow", "pyspark"
)  # before an import of these fails, which would not say how

from msgq.spark.runtime.session import session  # noqa: E402
from msgq.spark.source.bus_sink import BusSink  # noqa: E402
from msgq.spark.source.read import read  # noqa: E402

__all__ = ["BusSink", "read", "session"]

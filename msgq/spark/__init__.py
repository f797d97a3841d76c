"""Recordings as tables: Spark sessions, the source "msgq" for batch and stream, and results back to the bus.

Needs the extra `spark`, with the first use of what is in here.
"""

from msgq.spark.runtime.session import session
from msgq.spark.source.read import read
from msgq.spark.source.sink import Publisher

__all__ = ["Publisher", "read", "session"]

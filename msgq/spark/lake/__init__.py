"""Recordings as tables in a directory: `Lake`."""

from msgq.spark.lake.lake import Lake, follow

__all__ = ["Lake", "follow"]

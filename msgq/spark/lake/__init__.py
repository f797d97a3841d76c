"""Recordings as tables in a directory: `Lake`. Tables of many lakes: `build_fleet`."""

from msgq.spark.lake.fleet import build_fleet
from msgq.spark.lake.lake import Lake, follow

__all__ = ["Lake", "build_fleet", "follow"]

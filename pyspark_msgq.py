"""Where Spark looks for sources by itself: ``spark.read.format("msgq")`` works wherever msgq-bus is installed."""

from msgq.spark.source.data_source import RecordingSource as DefaultSource

__all__ = ["DefaultSource"]

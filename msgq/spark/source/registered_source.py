"""The source "msgq" for sessions in which Spark does not find it by itself."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource


def make_registered_source() -> type[DataSource]:
    """Return a class that creates a `RecordingSource`, or says what to do if a worker has no msgq.

    The class is local to this function, so Spark sends its code to the workers instead of its name.
    """

    class RegisteredSource(DataSource):
        def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]  # as a factory
            try:
                from msgq.spark.source.data_source import RecordingSource
            except ImportError as error:
                import sys

                raise ImportError(
                    f"Python '{sys.executable}' of Spark's workers cannot use msgq: {error}; before the session starts,"
                    " set PYSPARK_PYTHON to a Python with msgq-bus[spark], on all machines"
                ) from None
            return RecordingSource(options)

        @classmethod
        def name(cls) -> str:
            return "msgq"

    return RegisteredSource

"""What Spark and its Java refuse, in one line: an error of Spark is a page of Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgq.errors import SparkError


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into a `SparkError` of one line.

    Raises
    ------
    SparkError : what a query asks for is no SQL, or is not there, or cannot be done.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise SparkError(first_line(str(error))) from None


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank."""
    lines = (line.strip() for line in text.splitlines())
    return next(filter(None, lines), "Spark gives no reason")

"""One session for all tests about Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; it takes seconds to start, so nobody has one of their own."""
    from msgq.spark import session

    where = tmp_path_factory.mktemp("spark")
    made = session("local[2]", **{"spark.sql.warehouse.dir": str(where), "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()

"""One session for all tests about Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let one process of pytest-xdist have all tests of a kind, and give them time: two cores may have ten tenants.

    Those that start servers and drivers of their own do not need the process that has the session.
    """
    item.add_marker(pytest.mark.watchdog(900))
    if item.config.pluginmanager.hasplugin("xdist"):
        apart = any(item.iter_markers("cluster")) or any(item.iter_markers("fault"))
        item.add_marker(pytest.mark.xdist_group("spark servers" if apart else "spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; it takes seconds to start, so nobody has one of their own."""
    from msgq.spark import session

    where = tmp_path_factory.mktemp("spark")
    made = session("local[2]", **{"spark.sql.warehouse.dir": str(where), "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone cluster with two workers; one session at a time gets their cores."""
    from tests.spark import cluster

    with cluster.standalone(tmp_path_factory.mktemp("standalone")) as url:
        yield url

"""One session for each half of the tests about Spark. A test that starts a Java of its own has the mark `nightly`.

`make ci` has one test of each sort of them:

- a command, which is interrupted while Java starts: test_cli_lake.py
- a program with a session: test_session.py
- a stream whose driver is killed: test_many_recordings.py
- a cluster, with an executor in another process, which a program of spark-submit uses: test_clusters.py

A client of Spark Connect needs no Java of its own: its server is in the Java of the shared session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.deadline import DEADLINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests that share a fixture of the session run in one process of pytest-xdist. The first that a test has counts. The
# session starts twice, because all its tests in a row take longer than the other tests of `make ci`.
_GROUPS = {"standalone": "spark servers", "spark": "spark"}
_SECOND_HALF = "test_live.py"  # this file, and those after it


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group tests by what they share, and give all of them time."""
    shared = [fixture for fixture in _GROUPS if fixture in getattr(item, "fixturenames", ())]
    if shared and item.config.pluginmanager.hasplugin("xdist"):
        half = " 2" if shared[0] == "spark" and item.path.name >= _SECOND_HALF else ""
        item.add_marker(pytest.mark.xdist_group(_GROUPS[shared[0]] + half))
    item.add_marker(pytest.mark.watchdog(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; it takes seconds to start, so nobody has one of their own."""
    from msgq.spark import session
    from tests.spark import cluster

    where = tmp_path_factory.mktemp("spark")
    settings = {**cluster.settings(), **cluster.CONNECT_SETTINGS, "spark.sql.warehouse.dir": str(where)}
    made = session("local[2]", **settings)
    yield made
    made.stop()
    _end_java()


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """Return a new session whose plans show their scans."""
    made = spark.newSession()
    made.conf.set("spark.sql.adaptive.enabled", "false")
    return made


def _end_java() -> None:
    """End the Java that this process has started, which else lives until the process ends: it may be the run's own."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(DEADLINE)


@pytest.fixture(scope="session")
def connect_url(spark: Any) -> str:
    """The URL of a server for Spark Connect in the Java of the shared session."""
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    service = getattr(service, "MODULE$")
    service.start(spark._jsc.sc())
    return f"sc://127.0.0.1:{service.localPort()}"


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone cluster with two workers; one session at a time gets their cores."""
    from tests.spark import cluster

    with cluster.standalone(tmp_path_factory.mktemp("standalone")) as url:
        yield url

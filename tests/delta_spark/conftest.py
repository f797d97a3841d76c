"""One session of delta-spark for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")
from tests.delta_spark import engine
from tests.lake.local_lake import LocalLake, make_rows


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let one process of pytest-xdist run all tests, and give them time."""
    item.add_marker(pytest.mark.xdist_group("delta_spark"))
    item.add_marker(pytest.mark.watchdog(1800))


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine.DeltaSpark]:
    """A session of delta-spark."""
    with engine.start(tmp_path_factory.mktemp("delta_spark")) as found:
        yield found


@pytest.fixture(scope="session")
def written_lake(delta_spark: engine.DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """A lake of two ingests, which no test changes."""
    lake = LocalLake(tmp_path_factory.mktemp("written") / "lake")
    for number in range(2):
        lake.ingest(*make_rows(number, number))
        lake.build()
    return lake

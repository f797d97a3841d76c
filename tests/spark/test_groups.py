"""The groups in which pytest-xdist runs the tests that share a session of Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.conftest import pytest_itemcollected


@pytest.mark.parametrize(
    ("file", "fixtures", "group"),
    [
        ("test_align.py", ["spark"], "spark"),
        ("test_lake.py", ["session", "spark"], "spark"),
        ("test_live.py", ["spark"], "spark 2"),
        ("test_tables.py", ["spark"], "spark 2"),
        ("test_fleet.py", ["spark", "standalone"], "spark servers"),
        ("test_workers.py", ["tmp_path"], None),
    ],
)
def test_each_half_of_spark_tests_is_a_group(file: str, fixtures: list[str], group: str | None) -> None:
    marks: list[pytest.MarkDecorator] = []
    config = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: name == "xdist"))
    item: Any = SimpleNamespace(path=Path(file), fixturenames=fixtures, config=config, add_marker=marks.append)
    pytest_itemcollected(item)
    assert [mark.args[0] for mark in marks if mark.name == "xdist_group"] == [group] * (group is not None)

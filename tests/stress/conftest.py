"""Fixtures of the stress tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stress.process_group import ProcessGroup
from tests.support import LONGER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With MSGQ_STRESS everything takes longer, and so may the tests of this folder."""
    for item in items:
        if "stress" in item.path.parts:
            item.add_marker(pytest.mark.watchdog(60.0 * max(LONGER, 1)))


@pytest.fixture
def scene() -> Iterator[ProcessGroup]:
    scene = ProcessGroup()
    yield scene
    scene.close()

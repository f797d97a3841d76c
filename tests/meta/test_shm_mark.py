"""The mark of tests that need much of /dev/shm."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_runtest_setup


def item(mark: pytest.Mark | None) -> Any:
    return SimpleNamespace(get_closest_marker={"needs_shm": mark}.get)


def test_setup_with_little_free_memory_skips_marked_test_with_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=20 << 20))
    with pytest.raises(pytest.skip.Exception, match=r"needs 21 MiB of /dev/shm, which has 20 MiB free"):
        pytest_runtest_setup(item(pytest.mark.needs_shm(21 << 20).mark))
    pytest_runtest_setup(item(pytest.mark.needs_shm(20 << 20).mark))
    pytest_runtest_setup(item(None))

"""Fixtures that several modules here use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.c_programs import build


@pytest.fixture(scope="session", params=["plain", pytest.param("sanitized", marks=pytest.mark.ci)])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the C and C++ programs, which are compiled once a process."""
    folder = tmp_path_factory.mktemp("c-programs")
    yield build(folder, request.param == "sanitized")
    shutil.rmtree(folder)

"""Fixtures that several modules here use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.c_programs import programs_folder


@pytest.fixture(scope="session", params=["plain", pytest.param("sanitized", marks=pytest.mark.ci)])
def programs(request: pytest.FixtureRequest) -> Path:
    """The folder of the C and C++ programs."""
    return programs_folder(sanitized=request.param == "sanitized")

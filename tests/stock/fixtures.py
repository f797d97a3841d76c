"""The fixture of the interoperation tests, a pytest plugin."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """What a test enters here is closed at its end, the last first."""
    with contextlib.ExitStack() as stack:
        yield stack

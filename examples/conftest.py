"""What the tests of the examples share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.leftovers import new_token
from tests.support import SHM

KINDS = ("", "side", "chan", "pool", "jobs", "rec")  # parts of the names of a prefix's directories


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of this test alone, which its processes inherit; its folders are removed afterwards."""
    name = new_token()
    monkeypatch.setenv("OPENPILOT_PREFIX", name)
    yield name
    for kind in KINDS:
        shutil.rmtree(SHM / f"msgq{kind}_{name}", ignore_errors=True)

"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import HERE
from tests.crash.queues import QueuePlace
from tests.crash.records import RecordPlace
from tests.crash.topics import Topic
from tools.fuzz.build import cached_program


@pytest.fixture(scope="session")
def interposer() -> Path:
    """The points around system calls, to be preloaded into Python."""
    return cached_program(HERE / "interpose.c", "-O1", "-shared", "-fPIC", "-ldl")


@pytest.fixture
def topic(endpoint: str) -> Iterator[Topic]:
    with Topic(endpoint) as topic:
        yield topic


@pytest.fixture
def slot(endpoint: str) -> Iterator[QueuePlace]:
    """A work queue."""
    with QueuePlace(endpoint) as slot:
        yield slot


@pytest.fixture
def place(endpoint: str) -> Iterator[RecordPlace]:
    """A shared vector."""
    with RecordPlace(endpoint) as place:
        yield place


@pytest.fixture
def exclusive(endpoint: str) -> Iterator[RecordPlace]:
    with RecordPlace(endpoint, "exclusive") as place:
        yield place


@pytest.fixture
def board(endpoint: str) -> Iterator[RecordPlace]:
    with RecordPlace(endpoint, "board") as place:
        yield place

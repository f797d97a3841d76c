"""Fixtures of the crash tests: the two instruments, compiled once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.victims import Topic
from tests.stress.conftest import scene
from tools.fuzz.build import compile_program

__all__ = ["scene", "tools", "topic"]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the compiled driver and interposer."""
    folder = tmp_path_factory.mktemp("crash")
    compile_program(HERE / "driver.c", folder / "driver", "-O1")
    compile_program(HERE / "roster.c", folder / "roster", "-O1")
    compile_program(HERE / "interpose.c", folder / "interpose.so", "-O1", "-shared", "-fPIC", "-ldl")
    return folder


@pytest.fixture(scope="session")
def record_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of vectors and boards, compiled."""
    return compile_program(HERE / "record.c", tmp_path_factory.mktemp("crash") / "record", "-O1")


@pytest.fixture
def topic(tools: Path, endpoint: str) -> Iterator[Topic]:
    with Topic(tools, endpoint) as topic:
        yield topic

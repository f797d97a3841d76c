"""Fixtures of the crash tests: the two instruments, compiled once a session."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import msgq
from tests.crash.victims import Topic
from tests.stress.conftest import scene, seed

__all__ = ["scene", "seed", "tools", "topic"]

HERE = Path(__file__).parent
HEADERS = Path(msgq.__file__).parent / "impl"


@pytest.fixture(scope="session")
def tools() -> Iterator[Path]:
    """A directory with the compiled driver and interposer."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler here")
    with tempfile.TemporaryDirectory() as directory:
        common = [compiler, "-O1", "-Wall", "-Wextra", "-std=gnu11", "-D_GNU_SOURCE", f"-I{HEADERS}"]
        shared = [*common, "-shared", "-fPIC", str(HERE / "interpose.c"), "-o", f"{directory}/interpose.so", "-ldl"]
        for command in ([*common, str(HERE / "driver.c"), "-o", f"{directory}/driver"], shared):
            subprocess.run(command, check=True, timeout=60)
        yield Path(directory)


@pytest.fixture
def topic(tools: Path, endpoint: str) -> Iterator[Topic]:
    with Topic(tools, endpoint) as topic:
        yield topic

"""A session of delta-spark in a process of its own, in the environment of tools/delta_spark.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgq.spark.runtime.java import find_java
from tests.support import ROOT

ENVIRONMENT = ROOT / "build" / "delta-spark"
SERVER = ROOT / "tests" / "delta_spark" / "server.py"
_ERROR_LENGTH = 400


class DeltaSparkError(Exception):
    """A query has failed. The text is the begin of Spark's text."""


class DeltaSpark:
    """Runs SQL with delta-spark."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process, self._directory = process, directory

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query, as JSON has them."""
        return self._ask(query, None)

    def read(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        path = self._directory / "result"
        self._ask(query, str(path))
        rows = pq.read_table(path)
        shutil.rmtree(path)
        return rows

    def _ask(self, query: str, path: str | None) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([query, path]) + "\n")
        self._process.stdin.flush()
        answer: Any = json.loads(self._process.stdout.readline())
        if isinstance(answer, dict):
            raise DeltaSparkError(f"{query}: {answer['error'][:_ERROR_LENGTH]}")
        rows: list[dict[str, Any]] = answer
        return rows


@contextmanager
def start(directory: Path) -> Iterator[DeltaSpark]:
    """Start a session whose files are in a directory. Skips the test if the environment does not exist."""
    if not (ENVIRONMENT / "ready").exists():
        pytest.skip("needs delta-spark; `make delta-spark` downloads about 500 MB to build/delta-spark")
    jars = ",".join(sorted(map(str, (ENVIRONMENT / "ivy" / "jars").glob("*.jar"))))
    command = [ENVIRONMENT / "venv" / "bin" / "python", SERVER, directory, jars]
    environment = {"JAVA_HOME": str(find_java().home_path), "PATH": os.environ["PATH"], "TZ": "UTC"}
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            list(map(str, command)),
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline(), (directory / "log").read_text()
        yield DeltaSpark(process, directory)
        assert process.stdin is not None
        process.stdin.close()


def name_table(path: Path) -> str:
    """Return the name of a table in SQL."""
    return f"delta.`{path}`"

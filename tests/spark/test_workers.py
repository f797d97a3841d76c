"""The program that runs Spark's Python workers, and the archive of Java's classes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msgq.spark import cache
from msgq.spark.class_archive import archive_options
from msgq.spark.java import Java
from msgq.spark.workers import worker_python


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_program_is_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys; print(sys.executable, sys.argv[1:])"
    done = subprocess.run([worker_python(), "-c", text, "a b", "'"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.executable} {['a b', chr(39)]}\n"
    assert list(cache.folder().iterdir()) == [worker_python()]
    monkeypatch.setattr(sys, "executable", "/elsewhere/python")
    assert worker_python().read_text().endswith('exec /elsewhere/python "$@"\n')


def test_only_the_daemon_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = tmp_path / "a b"
    echo.write_text('#!/bin/sh\necho "$@"\n')
    echo.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(echo))
    for given, expected in (
        (["-m", "pyspark.daemon", "pyspark.worker"], "-m pyspark_msgq_daemon pyspark.worker"),
        (["-m", "pyspark.worker", "pyspark.daemon"], "-m pyspark.worker pyspark.daemon"),
    ):
        done = subprocess.run([worker_python(), *given], capture_output=True, text=True, check=True)
        assert done.stdout == f"{expected}\n"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").touch()
    cache.folder().mkdir(parents=True)
    return Java(tmp_path / "java", (21, 0, 1))


def draft_of(options: str) -> Path:
    return Path(options.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))


def test_one_session_writes_the_archive_for_all_later_ones(java: Java) -> None:
    pytest.importorskip("pyspark")
    draft = draft_of(archive_options(java))
    assert draft.name.endswith(f".{os.getpid()}")
    assert archive_options(java) == ""  # while the first one is there, and while its Java writes
    draft.write_bytes(b"\0" * 4096)
    assert archive_options(java) == ""
    draft.write_bytes(b"\xf0\x0b" + b"\0" * 4096)
    options = archive_options(java)
    assert options.startswith("-XX:SharedArchiveFile=")
    assert [Path(options.split()[0].partition("=")[2])] == list(cache.folder().iterdir())
    draft.write_bytes(b"\xf0\x0b")  # by a session that began before, and lasted longer
    assert archive_options(java) == options
    assert [path.suffix for path in cache.folder().iterdir()] == [".jsa"]
    assert archive_options(Java(java.home, (21, 0, 2))) != options


def test_a_draft_whose_java_was_killed_does_not_stay(java: Java) -> None:
    pytest.importorskip("pyspark")
    draft = draft_of(archive_options(java))
    os.utime(draft, (0, time.time() - 3600))
    assert draft_of(archive_options(java)) == draft
    assert time.time() - draft.stat().st_mtime < 3600


def test_no_archive_where_java_has_none_to_add_to_or_the_cache_is_not_there(java: Java) -> None:
    pytest.importorskip("pyspark")
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert archive_options(java) == ""
    assert not list(cache.folder().iterdir())

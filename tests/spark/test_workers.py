"""The program that runs Spark's Python workers, and the archive of Java's classes."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from msgq.spark.runtime import cache_dir, cds_archive
from msgq.spark.runtime.cds_archive import choose_archive_options, reject_archive
from msgq.spark.runtime.java import JavaRuntime
from msgq.spark.runtime.python_workers import make_worker_python
from tests.spark.deadline import DEADLINE


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_worker_program_is_current_python(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys; print(sys.executable, sys.argv[1:])"
    done = subprocess.run([make_worker_python(), "-c", text, "a b", "'"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.executable} {['a b', chr(39)]}\n"
    assert list(cache_dir.get_cache_folder().iterdir()) == [make_worker_python()]
    monkeypatch.setattr(sys, "executable", "/elsewhere/python")
    assert make_worker_python().read_text().endswith('exec /elsewhere/python "$@"\n')


def packages(folder: Path, *names: str) -> str:
    """Make modules that say their names and arguments; return what PYTHONPATH would be."""
    for name in names:
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import sys; print(__spec__.name, __name__, sys.argv[1:])")
    return str(folder)


def test_worker_program_replaces_only_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "a b").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b"))
    ours, modules = "pyspark_msgq_daemon", ("pyspark.daemon", "pyspark.worker")
    whole, bare = packages(tmp_path / "whole", ours, *modules), packages(tmp_path / "bare", *modules)
    for path, given, expected in (
        (whole, ["-m", "pyspark.daemon", "pyspark.worker"], f"{ours} __main__ ['pyspark.worker']"),
        (bare, ["-m", "pyspark.daemon", "pyspark.worker"], "pyspark.daemon __main__ ['pyspark.worker']"),
        (whole, ["-m", "pyspark.worker", "pyspark.daemon"], "pyspark.worker __main__ ['pyspark.daemon']"),
    ):
        monkeypatch.setenv("PYTHONPATH", path)
        done = subprocess.run([make_worker_python(), *given], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout == f"{expected}\n"


def test_worker_of_stream_connects_before_it_imports_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner, as those of pyspark, takes the connection after its import, which ends when the test has it."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("import sys\nsys.stdin.readline()\n")
    (tmp_path / "pyspark" / "util.py").write_text(
        "def local_connect_and_auth(place, secret):\n    return place, secret\n"
    )
    (tmp_path / "pyspark" / "runner.py").write_text(
        "import os, sys\nfrom pyspark.util import local_connect_and_auth as connect\n"
        "file, connection = connect(os.environ['PYTHON_WORKER_FACTORY_SOCK_PATH'], None)\n"
        "file.write(f'{__name__} {sys.argv[1:]} {connect(7, None)}'.encode())\nfile.close()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        listener.settimeout(DEADLINE)
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_SOCK_PATH", str(tmp_path / "socket"))
        command = [str(make_worker_python()), "-m", "pyspark.runner", "a b"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as worker:
            try:
                with listener.accept()[0] as connection:
                    worker.communicate(b"\n")
                    assert connection.recv(100) == b"__main__ ['a b'] (7, None)"
            finally:
                worker.kill()
    assert worker.returncode == 0


def test_worker_program_supports_non_utf8_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/x/\udcff y/python")
    assert make_worker_python().read_bytes().endswith(b"exec '/x/\xff y/python' \"$@\"\n")


@pytest.fixture
def java(tmp_path: Path) -> JavaRuntime:
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    for name in ("classes.jsa", "classes_nocoops.jsa"):
        (tmp_path / "java" / "lib" / "server" / name).touch()
    cache_dir.get_cache_folder().mkdir(parents=True)
    return JavaRuntime(tmp_path / "java", (21, 0, 1))


WHOLE = b"\xf0\x0b" + b"\0" * 4096


def draft_of(options: str) -> Path:
    name, _, path = shlex.split(options)[0].partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_first_session_writes_class_archive_for_later_sessions(java: JavaRuntime) -> None:
    pytest.importorskip("pyspark")
    draft = draft_of(choose_archive_options(java))
    assert choose_archive_options(java) == ""  # while the first one is there, and while its Java writes
    draft.write_bytes(b"\0" * 4096)
    assert choose_archive_options(java) == ""
    draft.write_bytes(WHOLE)
    options = choose_archive_options(java)
    assert options.startswith("-XX:SharedArchiveFile=")
    assert [Path(options.split()[0].partition("=")[2])] == list(cache_dir.get_cache_folder().iterdir())
    taken = os.stat(shlex.split(options)[0].partition("=")[2]).st_ino
    draft.write_bytes(b"\xf0\x0b")  # by a session that began before, and lasted longer
    assert choose_archive_options(java) == options
    assert os.stat(shlex.split(options)[0].partition("=")[2]).st_ino == taken, "others may run with it"
    assert [path.suffix for path in cache_dir.get_cache_folder().iterdir()] == [".jsa"]
    assert choose_archive_options(JavaRuntime(java.home_path, (21, 0, 2))) != options


@pytest.mark.parametrize("kind", ["open", "another user's", "link"])
def test_class_archive_of_other_user_is_ignored(
    java: JavaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Who has no home has the cache among the temporary files, where anybody may have made it before."""
    pytest.importorskip("pyspark")
    if kind == "another user's" and os.geteuid() != 0:
        pytest.skip("needs root to give a directory away")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # ~ stays without a home
    ours = cache_dir.get_cache_folder()
    assert ours.parent == tmp_path
    draft_of(choose_archive_options(java)).write_bytes(WHOLE)
    assert "SharedArchiveFile" in choose_archive_options(java)
    if kind == "open":
        ours.chmod(0o777)
    elif kind == "another user's":
        os.chown(ours, 12345, -1)
    else:
        ours.rename(tmp_path / "theirs")
        ours.symlink_to(tmp_path / "theirs")
    assert choose_archive_options(java) == ""
    reject_archive(java)
    assert len(list(ours.iterdir())) == 1, "what is not ours is let alone"


def test_incomplete_class_archive_of_killed_java_is_removed(java: JavaRuntime) -> None:
    pytest.importorskip("pyspark")
    draft = draft_of(choose_archive_options(java))
    os.utime(draft, (0, time.time() - 3600))
    assert draft_of(choose_archive_options(java)) != draft
    assert not draft.exists()


def test_java_with_incompatible_options_writes_no_class_archive(java: JavaRuntime, tmp_path: Path) -> None:
    """With some of them it would not start: "Must enable AllowArchivingWithJavaAgent", and the like."""
    pytest.importorskip("pyspark")
    assert choose_archive_options(java, "-javaagent:x.jar") == ""
    draft_of(choose_archive_options(java)).write_bytes(WHOLE)
    assert "SharedArchiveFile" in choose_archive_options(java, "-javaagent:x.jar")
    for option in ("-Xshare:off", "-XX:SharedArchiveFile=theirs", "-XX:ArchiveClassesAtExit=theirs"):
        assert choose_archive_options(java, f"-Dx=1 {option}") == ""
    reject_archive(java)  # the broken one goes
    draft = draft_of(choose_archive_options(java))
    reject_archive(java)  # no other one is made after one that could not be
    draft.unlink()
    assert choose_archive_options(java) == ""


def test_class_archive_needs_valid_path_and_disk_space(java: JavaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    with monkeypatch.context() as patch:
        patch.setattr(cds_archive, "_FREE_DISK_BYTES_MIN", 1 << 80)
        assert choose_archive_options(java) == ""
    for name, possible in (("a b'c\"d", True), ("a:b", False)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(java.home_path.parent / name))
        cache_dir.get_cache_folder().mkdir(parents=True)
        options = choose_archive_options(java)
        assert (options != "") is possible
        assert not possible or draft_of(options).parent == cache_dir.get_cache_folder()


def test_java_without_base_archive_or_cache_writes_no_class_archive(java: JavaRuntime) -> None:
    pytest.importorskip("pyspark")
    (java.home_path / "lib" / "server" / "classes_nocoops.jsa").unlink()  # a large heap needs this archive
    assert choose_archive_options(java) == ""
    assert not list(cache_dir.get_cache_folder().iterdir())

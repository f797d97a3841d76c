"""Compiles the floor: one Python extension and its programs, in about a second."""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCES = Path(__file__).parent
LIMIT_S = 60
FLAGS = ["-std=c11", "-O3", "-DNDEBUG", "-Wall", "-Wextra"]


class FloorError(Exception):
    """The floor cannot be built here, or a program of it failed. The text is of the compiler, or of the program."""


def compiler() -> list[str]:
    """Return the C compiler as words: the environment's CC, the one Python was built with, or cc."""
    for choice in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"):
        words = shlex.split(choice or "")
        if words and shutil.which(words[0]):
            return words
    raise FloorError("no C compiler found; set CC")


def build(folder: Path) -> None:
    """Compile everything into `folder`, which must exist.

    Raises:
        FloorError: there is no compiler, or it refuses.
    """
    include = "-I" + sysconfig.get_path("include")
    started = [
        _start(["-shared", "-fPIC", include, "floormodule.c"], folder / "bench_floor.so"),
        _start(["stream.c"], folder / "stream"),
        _start(["records.c"], folder / "records"),
        _start(["-pthread", "limits.c"], folder / "limits"),
    ]
    for compilation in started:
        _finish(compilation)


def build_bus(path: Path, msgq_include: Path | None) -> None:
    """Compile the bus in C, with the C library of msgq, or with the minimal ring.

    Raises:
        FloorError: as `build`.
    """
    words = ["bus.c", "-pthread"]
    if msgq_include is not None:
        implementation = msgq_include.parent / "impl"
        sources = map(str, sorted((implementation / "c").glob("*.c")))
        words += ["-DBENCH_MSGQ", f"-I{msgq_include}", f"-I{implementation}", *sources]
    _finish(_start(words, path))


def build_preloaded(folder: Path) -> Path:
    """Compile the library that `instructions` preloads into `folder`, and return its path.

    Raises:
        FloorError: as `build`.
    """
    _finish(_start(["-shared", "-fPIC", "asleep.c", "-ldl"], folder / "asleep.so"))
    return folder / "asleep.so"


def load(folder: Path) -> ModuleType:
    """Import the extension that `build` left in `folder`."""
    spec = importlib.util.spec_from_file_location("bench_floor", folder / "bench_floor.so")
    if spec is None or spec.loader is None:
        raise ImportError(f"no floor in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_program(folder: Path, program: str, *arguments: float | str) -> dict[str, Any]:
    """Run a program that `build` left in `folder`, and return the object that it prints.

    Raises:
        FloorError: it cannot run, or takes too long.
    """
    command = [str(folder / program), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise FloorError(f"{error}\n{getattr(error, 'stderr', None) or ''}") from error
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def _start(arguments: list[str], target: Path) -> "subprocess.Popen[str]":
    command = [*compiler(), *FLAGS, *arguments, "-o", str(target)]
    return subprocess.Popen(command, cwd=SOURCES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(compilation: "subprocess.Popen[str]") -> None:
    _, errors = compilation.communicate()
    if compilation.returncode:
        raise FloorError(f"{compilation.args!r}\n{errors.strip()}")

"""Builds the C and C++ programs of examples/c, and runs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import msgq
from tests.support import ROOT
from tests.unit import c_null_calls
from tools.fuzz.build import SANITIZED, cached_path, compiler, digest, run_compiler

EXAMPLES = ROOT / "examples" / "c"
INCLUDE = Path(msgq.get_include())
UNITS = INCLUDE.parent / "impl" / "c"
FLAGS = ("-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", f"-I{UNITS.parent}")
KINDS = ("topic", "channel", "queue", "records")


def run_command(*command: str | Path) -> None:
    run_compiler([*map(str, command)])


def cpp_compiler() -> str:
    return os.environ.get("CXX") or "g++"


def targets(folder: Path) -> Iterator[tuple[tuple[str | Path, ...], Path]]:
    """Return how each program is compiled, and to what."""
    for name in ("channel", "contracts", "queue", "rows", "waiting"):
        # a program without memory, see c_contracts.c
        wrapped = ("-Wl,--wrap=calloc",) if name == "contracts" else ()
        source = ROOT / "tests" / "unit" / f"c_{name}.c"
        yield (compiler(), "-std=gnu11", *wrapped, source), folder / f"c-{name}"
    poll = ROOT / "tests" / "unit" / "c_poll.c"
    yield (compiler(), "-std=gnu11", "-Wl,--wrap=syscall", poll), folder / "c-poll"
    yield (compiler(), "-std=gnu11", EXAMPLES / "poll.c"), folder / "poll"
    yield (compiler(), "-std=gnu11", folder / "c_null.c"), folder / "c-null"
    yield (cpp_compiler(), "-std=c++20", ROOT / "tests" / "unit" / "cpp_handles.cpp"), folder / "cpp-handles"
    for kind in KINDS:
        yield (compiler(), "-std=gnu11", EXAMPLES / f"{kind}.c"), folder / kind
        yield (cpp_compiler(), "-std=c++20", EXAMPLES / f"{kind}.cpp"), folder / f"{kind}-cpp"


def programs_folder(sanitized: bool) -> Path:
    """Return the folder of all compiled programs: topic, topic-cpp and so on."""
    flags = SANITIZED if sanitized else ("-O1",)
    sources = [
        path
        for folder in ("examples/c", "msgq", "tests/unit", "visionipc")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".c", ".cpp", ".h", ".hpp")
    ]
    scripts = (Path(__file__), Path(c_null_calls.__file__))
    texts = (*(path.read_text() for path in scripts), run_compiler([cpp_compiler(), "--version"]), *FLAGS, *flags)
    return cached_path("c-programs", digest(texts, sources), lambda folder: _build(folder, flags))


def _build(folder: Path, flags: tuple[str, ...]) -> None:
    folder.mkdir()
    c_null_calls.write_null_calls(INCLUDE / "msgq", folder / "c_null.c")
    objects = {unit: folder / f"{unit.stem}.o" for unit in sorted(UNITS.glob("*.c"))}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        units: list[tuple[str | Path, ...]] = [
            (compiler(), "-std=c11", *FLAGS, *flags, "-c", "-o", to, unit) for unit, to in objects.items()
        ]
        for done in [pool.submit(run_command, *command) for command in units]:
            done.result()
        ends: tuple[str | Path, ...] = (*FLAGS, *flags, "-pedantic", *objects.values(), "-pthread", "-o")
        for done in [pool.submit(run_command, *command, *ends, to) for command, to in targets(folder)]:
            done.result()


class Program:
    """A program of examples/c that runs. It ends with the block."""

    def __init__(self, path: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [path, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1", **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, line: str) -> str:
        """Return what it prints for a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.rstrip("\n")

    def end(self) -> list[str]:
        """Return the lines that it prints until it ends, which must be well."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdin = None
        said = self.process.stdout.read()  # by the buffer that `hear` reads from
        errors = self.process.communicate(timeout=40)[1]
        assert self.process.returncode == 0, errors
        assert errors == ""
        return said.splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

"""The C library compiles without extensions of a compiler: its sources as C11, its public headers as C and C++."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.unit.c_programs import EXAMPLES, INCLUDE, UNITS
from tools.fuzz.build import cached_path, digest, run_compiler

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{INCLUDE}", f"-I{UNITS.parent}")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
CPP_COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.h"))


def compiler_messages(*command: str | Path, source: str | None = None) -> str:
    """Return a compiler's messages about a source: a file, or a text on its standard input.

    The messages come from the cache while the compiler, the command and all C files stay the same.
    """

    def compile_source(target: Path) -> None:
        done = subprocess.run([*command], input=source, text=True, capture_output=True, check=False)
        target.write_text(done.stderr)

    key = digest([digest_of_files(), version(str(command[0])), *map(str, command), source or ""])
    return cached_path("messages", key, compile_source).read_text()


@cache
def digest_of_files() -> str:
    paths = (path for folder in (INCLUDE.parent, EXAMPLES) for path in folder.rglob("*.*"))
    return digest([], [path for path in paths if path.suffix in (".h", ".hpp", ".c", ".cpp")])


@cache
def version(compiler: str) -> str:
    return run_compiler([compiler, "--version"])


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.c")), ids=lambda unit: unit.name)
def test_c_source_compiles_as_strict_c11(compiler: str, unit: Path) -> None:
    assert compiler_messages(compiler, "-std=c11", *STRICT, unit) == ""


@pytest.mark.parametrize("standard", ["c99", "c11"])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("header", HEADERS)
def test_single_public_header_compiles_as_strict_c(header: str, compiler: str, standard: str) -> None:
    source = f"#include <{header}>\nint main(void) {{ return 0; }}\n"
    assert compiler_messages(compiler, f"-std={standard}", *STRICT, "-xc", "-", source=source) == ""


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
@pytest.mark.parametrize("compiler", CPP_COMPILERS)
@pytest.mark.parametrize("header", HEADERS)
def test_single_public_header_compiles_as_strict_cpp(header: str, compiler: str, standard: str) -> None:
    source = f"#include <{header}>\nint main() {{ return 0; }}\n"
    assert compiler_messages(compiler, f"-std={standard}", *STRICT, "-xc++", "-", source=source) == ""


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.c*")), ids=lambda path: path.name)
def test_c_example_compiles_without_warnings(path: Path) -> None:
    cpp = path.suffix == ".cpp"
    for compiler in CPP_COMPILERS if cpp else COMPILERS:
        assert compiler_messages(compiler, "-std=c++20" if cpp else "-std=gnu11", *STRICT, path) == ""


@pytest.mark.parametrize("compiler", CPP_COMPILERS)
def test_cpp_header_compiles_as_strict_cpp20_and_names_the_standard(compiler: str) -> None:
    source = '#include <msgq.hpp>\nint main() { return msgq::Error(1, "text").code() - 1; }\n'
    assert compiler_messages(compiler, "-std=c++20", *STRICT, "-xc++", "-", source=source) == ""
    assert "msgq.hpp needs C++20" in compiler_messages(compiler, "-std=c++17", *STRICT, "-xc++", "-", source=source)

"""Builds without the GIL: which methods the compiler gives a critical section, and what the import says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.building.critical_sections import HAS_GIL

SOURCE = """
cdef class Known:
    cdef int field

    def __cinit__(self):
        self.field = 1

    def __dealloc__(self):
        self.field = 0

    def plain(self):
        return self.field

    @property
    def value(self):
        return self.field

    @value.setter
    def value(self, int number):
        self.field = number

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        raise BufferError()

    def generated(self):
        yield self.field

    @staticmethod
    def static(argument):
        return argument

    cdef int inner(self):
        return self.field


def function(argument):
    return argument
"""
COMPILE = """
import sys
from Cython.Compiler.Main import CompilationOptions, compile
from tools.building.critical_sections import add_critical_sections
if sys.argv[2] == "add":
    add_critical_sections()
compile(sys.argv[1], CompilationOptions(language_level=3))
"""


def sections_of(source: Path, adds: str) -> set[str]:
    """Return the functions of the generated C code that begin a critical section."""
    subprocess.run([sys.executable, "-c", COMPILE, str(source), adds], cwd=ROOT, check=True)
    parts = re.split(
        r"^static \w[^;\n]* \*?(__pyx_\w+)\([^;\n]*\) \{$", source.with_suffix(".c").read_text(), flags=re.M
    )
    names = [name for name, body in zip(parts[1::2], parts[2::2], strict=True) if "CriticalSection_Begin(&" in body]
    return {name.partition("Known_")[2] or name for name in names}


def test_compiler_gives_each_method_of_a_class_a_critical_section(tmp_path: Path) -> None:
    source = tmp_path / "known.pyx"
    source.write_text(SOURCE)
    found = {re.sub(r"^\d+", "", name) for name in sections_of(source, "add")}
    assert found == {"plain", "value___get__", "value_2__set__", "__getbuffer__"}
    assert sections_of(source, "leave") == set()


@pytest.mark.skipif(HAS_GIL, reason="this Python has the GIL")
def test_import_without_the_gil_does_not_switch_it_on() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").with_suffix("").parts)
        for package in ("msgq", "visionipc")
        for path in (ROOT / package).rglob("*.so")
    ]
    code = f"import importlib, sys; [importlib.import_module(name) for name in {names}]; print(sys._is_gil_enabled())"
    command = [sys.executable, "-W", "error", "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr

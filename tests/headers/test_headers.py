"""Runs the unit tests of the C files in this folder, each as a test of its own."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tools.fuzz import build

HERE = Path(__file__).parent
NAMES = [
    f"{source.stem}-{name}"
    for source in sorted(HERE.glob("*.c"))
    for name in re.findall(r"^TEST\((\w+)\)", source.read_text(), re.MULTILINE)
]


@cache
def program(stem: str) -> Path:
    return build.cached_program(HERE / f"{stem}.c", "-O0")


@pytest.mark.parametrize("name", NAMES)
def test_header_programs_succeed(name: str) -> None:
    stem, _, test = name.partition("-")
    done = subprocess.run([program(stem), test], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr

"""Docstrings have Google style, which editors, `help` and the documentation site understand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.meta.sources import ROOT

FOLDERS = ("examples", "msgq", "msgq_demo", "tests", "tools", "visionipc")
#: A heading with dashes below, and an entry with a space before its colon.
OTHER_STYLES = (
    re.compile(r"(?m)^(Parameters|Returns|Raises|Attributes|Notes)\n---"),
    re.compile(r"(?m)^ *\*{0,2}\w+(, \w+)* : [a-z].*$"),
)
SECTION = re.compile(r"(?m)^(?:Args|Attributes):\n((?:(?: {4}.*)?\n)*)")
ENTRY = re.compile(r"\*{0,2}\w+: \S")


def find_docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def find_faults(text: str) -> list[str]:
    """Return the entries and headings of a docstring that are not Google style."""
    faults = [match[0] for style in OTHER_STYLES for match in style.finditer(text)]
    for body in SECTION.findall(f"{text}\n"):
        faults += [entry for entry in re.findall(r"(?m)^ {4}(\S.*)$", body) if not ENTRY.match(entry)]
    return faults


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\n\nParameters\n----------\na\n    text",
        "Do it.\n\na : text",
        "Do it.\n\nArgs:\n    a, b: text",
        "Do it.\n\nArgs:\n    a: text\n        continued\n    b (int): text",
        "Do it.\n\nAttributes:\n    the end",
    ],
)
def test_docstring_of_another_style_is_found(text: str) -> None:
    assert find_faults(text)


@pytest.mark.parametrize(
    "text", ["Do it.", "Do it.\n\nArgs:\n    a: text\n        continued\n    *b: text\n\nRaises:\n    E, F: x"]
)
def test_docstring_of_google_style_has_no_faults(text: str) -> None:
    assert find_faults(text) == []


@each_case("folder", FOLDERS)
def test_docstrings_have_google_style(folder: str) -> None:
    paths = [path for ending in ("py", "pyi") for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    assert paths
    faults = {str(path): found for path in paths for text in find_docstrings(path) if (found := find_faults(text))}
    assert faults == {}

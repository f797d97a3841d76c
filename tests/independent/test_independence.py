"""The implementations in this folder use the standard library and the docs, and nothing of this project."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
MODULES = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_independent_module_imports_only_standard_library(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or ".")
    others = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in others if not name.startswith("tests.independent.")} == set()


def test_independent_atomics_include_no_msgq_header() -> None:
    assert '#include "' not in (FOLDER / "atomics.c").read_text()

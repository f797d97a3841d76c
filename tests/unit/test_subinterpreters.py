"""Imports of msgq in subinterpreters: an error that says why, and the main interpreter is not affected."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

IMPORT = """
import os
try:
    import msgq
except ImportError as error:
    os.write(1, f"{type(error).__name__}: {error}\\n".encode())
else:
    os.write(1, b"imported\\n")
"""
PROGRAM = f"""
import sys

if sys.version_info >= (3, 13):
    import _interpreters
    interpreter = _interpreters.create(sys.argv[1])
    execute = _interpreters.exec
else:
    import _xxsubinterpreters as _interpreters
    interpreter = _interpreters.create(isolated=sys.argv[1] == "isolated")
    execute = _interpreters.run_string
if "main interpreter first" in sys.argv:
    import msgq
execute(interpreter, "import sys; sys.path.insert(0, '')")
execute(interpreter, {IMPORT!r})
_interpreters.destroy(interpreter)
exec({IMPORT!r})
"""


def print_imports(*arguments: str) -> list[str]:
    """Return what a subinterpreter and then the main interpreter print about the import."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
@pytest.mark.skipif(sys.version_info < (3, 12), reason="the first interpreter that imports msgq is the only one")
def test_import_in_subinterpreter_raises_error_of_its_own(kind: str) -> None:
    refused, imported = print_imports(kind)
    assert refused.startswith("SubinterpreterError: msgq was imported in a subinterpreter")
    assert imported == "imported"


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_import_in_subinterpreter_after_main_interpreter_raises(kind: str) -> None:
    refused, imported = print_imports(kind, "main interpreter first")
    assert "ImportError: Interpreter change detected" in refused or "SubinterpreterError: " in refused
    assert imported == "imported"

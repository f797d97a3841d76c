"""The stubs say what is in the compiled modules, with the same parameters, and give each public method a contract."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import IMPLS, ROOT


def compiled(ending: str) -> dict[str, Path]:
    """Return the files of the compiled modules, by the modules' names."""
    paths = [path for folder in IMPLS for path in sorted(folder.glob(f"*.{ending}"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


ALLOWED = Path(__file__).with_name("stubtest_allowed.txt")


def is_setter(method: ast.FunctionDef) -> bool:
    """The property that it belongs to has the contract."""
    return any(isinstance(decorator, ast.Attribute) for decorator in method.decorator_list)


STUBS = {module: ast.parse(path.read_text()) for module, path in compiled("pyi").items()}
METHODS = [
    pytest.param(module, kind, method, id=f"{kind.name}.{method.name}")
    for module, tree in STUBS.items()
    for kind in tree.body
    if isinstance(kind, ast.ClassDef)
    for method in kind.body
    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and not is_setter(method)
]


def test_each_compiled_module_has_a_stub():
    assert set(STUBS) == set(compiled("pyx"))


@pytest.mark.watchdog(300.0)
def test_stubs_agree_with_the_compiled_modules():
    command = [sys.executable, "-m", "mypy.stubtest", "--allowlist", str(ALLOWED), *STUBS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("module", "kind", "method"), METHODS)
def test_public_method_has_a_contract(module, kind, method):
    text = ast.get_docstring(method)
    assert text
    assert text[0].isupper()
    parameters = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    for parameter in parameters:
        if parameter.arg != "self" and len(parameters) > 2:
            assert f"{parameter.arg} :" in text, f"{parameter.arg} is not explained"


def signature(arguments: ast.arguments) -> list[tuple[str, str]]:
    """Return names and defaults."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [(name.arg, ast.unparse(default) if default else "") for name, default in pairs]


@pytest.mark.parametrize(("module", "kind", "method"), METHODS)
def test_stub_has_the_parameters_of_the_compiled_method(module, kind, method):
    """stubtest cannot see them: the compiled methods carry their signature in their docstring."""
    found = getattr(importlib.import_module(module), kind.name)
    first = (getattr(found, method.name).__doc__ or "").partition("\n")[0]
    if not first.startswith(f"{method.name}("):
        assert method.decorator_list or len(method.args.args) == 1, "a method without a signature in its docstring"
        return
    embedded = ast.parse(f"def {first}: ...").body[0]
    assert isinstance(embedded, ast.FunctionDef)
    assert signature(embedded.args) == signature(method.args)

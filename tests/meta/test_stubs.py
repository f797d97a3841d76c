"""The stubs say what is in the compiled modules, and give each public method a contract, which `help` shows as well."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.meta.sources import PACKAGES, ROOT


def find_module_files(ending: str) -> dict[str, Path]:
    """Return the files of the compiled modules, by the modules' names."""
    paths = [path for folder in PACKAGES for path in sorted(folder.rglob(f"*.{ending}"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


STRUCT_SEQUENCE = frozenset({"n_fields", "n_sequence_fields", "n_unnamed_fields"})  # attributes of each struct sequence
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
ALLOWED = Path(__file__).with_name("stubtest_allowed.txt")


def is_setter(method: ast.FunctionDef) -> bool:
    """The property that it belongs to has the contract."""
    return any(isinstance(decorator, ast.Attribute) for decorator in method.decorator_list)


def documented_members(kind: ast.stmt) -> list[ast.FunctionDef]:
    """Return what a class of a stub promises to users: not what is private, and no setters; of overloads the last."""
    found = kind.body if isinstance(kind, ast.ClassDef) else []
    setters = [member for member in found if isinstance(member, ast.FunctionDef) and is_setter(member)]
    functions = {
        member.name: member for member in found if isinstance(member, ast.FunctionDef) and member not in setters
    }
    return [member for member in functions.values() if not member.name.startswith("_")]


def find_constructors(kind: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return what says how an object of a class is made."""
    functions = [member for member in kind.body if isinstance(member, ast.FunctionDef)]
    return [member for member in functions if member.name in ("__init__", "__new__")]


STUBS = {module: ast.parse(path.read_text()) for module, path in find_module_files("pyi").items()}
CLASSES = {
    f"{module}.{kind.name}": kind
    for module, tree in STUBS.items()
    for kind in tree.body
    if isinstance(kind, ast.ClassDef)
}
METHODS = {f"{name}.{method.name}": method for name, kind in CLASSES.items() for method in documented_members(kind)}
Documented = ast.ClassDef | ast.FunctionDef
DOCUMENTED = {
    ".".join((module, *names)): (module, names, node)
    for module, tree in STUBS.items()
    for kind in tree.body
    if isinstance(kind, Documented)
    for names, node in [
        ((kind.name,), kind),
        *(((kind.name, member.name), member) for member in documented_members(kind)),
    ]
    if ast.get_docstring(node)
}


def test_each_compiled_module_has_stub() -> None:
    assert set(STUBS) == set(find_module_files("pyx"))


def names_in_stub(kind: ast.ClassDef) -> set[str]:
    """Return the names of the members and attributes of a class in a stub."""
    functions = {member.name for member in kind.body if isinstance(member, ast.FunctionDef)}
    assigned = [member.target for member in kind.body if isinstance(member, ast.AnnAssign)]
    return functions | {target.id for target in assigned if isinstance(target, ast.Name)}


@each_case("name", CLASSES)
def test_compiled_classes_have_public_names_of_stubs(name: str) -> None:
    kind = load_object(*name.rsplit(".", 1))
    promised, inherited = set(), STRUCT_SEQUENCE
    for base in kind.__mro__:
        stub = CLASSES.get(f"{base.__module__}.{base.__name__}")
        promised |= names_in_stub(stub) if stub else set()
        inherited |= set() if stub else {*dir(base)}
    found = {name for name in dir(kind) if not name.startswith("_")} - inherited
    assert found == {name for name in promised if not name.startswith("_")} - inherited


@pytest.mark.watchdog(300.0)
@pytest.mark.ci
def test_stubs_agree_with_compiled_modules() -> None:
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        "--mypy-config-file",
        "pyproject.toml",
        "--allowlist",
        str(ALLOWED),
        *STUBS,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each_case("method", METHODS.values(), METHODS)
def test_public_methods_have_complete_docstrings(method: ast.FunctionDef) -> None:
    text = ast.get_docstring(method)
    assert text
    assert text[0].isupper()
    parameters = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    for parameter in parameters:
        if parameter.arg != "self" and len(parameters) > 2:
            entry = rf"^ +\*{{0,2}}{parameter.arg}: \S"
            assert re.search(entry, text, re.MULTILINE), f"{parameter.arg} is not explained"


def load_object(module: str, *names: str) -> Any:
    """Return a function, a class, or a member of a class."""
    found: Any = importlib.import_module(module)
    for name in names:
        found = inspect.getattr_static(found, name)
    return found


@each_case("module, names, stub", DOCUMENTED.values(), DOCUMENTED)
def test_help_shows_docstrings_of_stubs(module: str, names: tuple[str, ...], stub: Documented) -> None:
    contract = ast.get_docstring(stub)
    found = inspect.getdoc(load_object(module, *names)) or ""
    if not isinstance(stub, ast.ClassDef):
        assert found == contract
        return
    made = [ast.get_docstring(maker) for maker in find_constructors(stub)]
    assert found == "\n\n".join(filter(None, [contract, *made]))


@each_case("module, names, stub", DOCUMENTED.values(), DOCUMENTED)
def test_signatures_have_parameters_of_stubs(module: str, names: tuple[str, ...], stub: Documented) -> None:
    found = load_object(module, *names)
    if isinstance(stub, ast.ClassDef):
        for maker in find_constructors(stub):
            assert parameters(found) == stub_parameters(maker.args)[1:]  # but self
    elif callable(found):
        assert parameters(found) == stub_parameters(stub.args)


def parameters(function: Any) -> list[tuple[str, str, bool]]:
    """Return names, defaults, and which are for keywords only, as `inspect` and editors see them."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, "" if one.default is one.empty else repr(one.default), one.kind is _KEYWORD) for one in found]


def stub_parameters(arguments: ast.arguments) -> list[tuple[str, str, bool]]:
    """Return the same of a stub."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    found = [*zip(positional, defaults, [False] * len(positional), strict=True)]
    found += [(name, None, False) for name in [arguments.vararg] if name]
    found += [(name, default, True) for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [(name.arg, repr(ast.literal_eval(value)) if value else "", keyword) for name, value, keyword in found]

"""The page of errors lists each class of msgq.errors with its place in the tree, its Python base and its errno."""

from __future__ import annotations

import errno
import inspect
import re

from msgq import errors
from tests.meta.sources import ROOT

PAGE = (ROOT / "docs/reference/errors.md").read_text()
EVERYTHING = {name: getattr(errors, name) for name in dir(errors)}  # also the class that is imported late
CLASSES = {
    name: value for name, value in EVERYTHING.items() if inspect.isclass(value) and issubclass(value, errors.MsgqError)
}
ROWS = re.findall(r"^\| `(\w+)` \| (?:`([\w.]+)`|-) \| (?:`(\w+)`|-) \| (.+?) \| (.*?) \|$", PAGE, re.MULTILINE)


def own_parent(name: str) -> str:
    """Return the name of the base class in msgq.errors, "" for the root."""
    return next((base.__name__ for base in CLASSES[name].__bases__ if base.__name__ in CLASSES), "")


def python_base(name: str) -> str:
    """Return the name of the base class from Python, "" if there is none."""
    bases = [base for base in CLASSES[name].__bases__ if base.__name__ not in CLASSES]
    return "".join(base.__name__ if base.__module__ == "builtins" else f"queue.{base.__name__}" for base in bases)


def test_each_error_class_has_one_row_on_errors_page() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(CLASSES)
    defined = {name for name, value in EVERYTHING.items() if getattr(value, "__module__", "") == errors.__name__}
    assert {name for name in defined if not name.startswith("_")} == {*CLASSES, "MsgqWarning"}


def test_error_row_states_python_base_and_errno() -> None:
    stated = {name: (base, getattr(errno, number) if number else None) for name, base, number, *_ in ROWS}
    assert stated == {name: (python_base(name), CLASSES[name].errno) for name in CLASSES}


def test_error_row_states_cause_and_remedy() -> None:
    assert [name for name, _, _, cause, cure in ROWS if not (cause and cure)] == []


def test_error_tree_shows_each_class_below_its_base() -> None:
    tree = re.search(r"^## Tree\n\n```text\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert tree
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in tree[1].splitlines():
        name = line.split()[-1]
        depth = line.index(name) // 4
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else ""
    assert parents == {name: own_parent(name) for name in CLASSES}

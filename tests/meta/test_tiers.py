"""Nothing is left to the slow tests alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.meta.sources import ROOT, imports, modules

ALONE = {"msgq.spark.tables.align": "joins that only Spark can do: tests/spark/test_align.py"}
SLOW_FIXTURES = {"spark", "standalone"}  # tests/spark/conftest.py: what starts a Java is slow


def has_fast_test(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0]) and is_slow(node.value):
            return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return any(
        not any(map(is_slow, function.decorator_list)) and SLOW_FIXTURES.isdisjoint(a.arg for a in function.args.args)
        for function in functions
    )


def is_slow(mark: ast.expr) -> bool:
    """Whether it is the mark for all, not for some parameters."""
    return "pytest.param" not in ast.unparse(mark) and "mark.slow" in ast.unparse(mark)


def reached(tests: list[Path]) -> set[str]:
    """Return the packages' modules that these tests load: those that they name, and what is imported with them.

    An import within a function, or by name, counts when a test says a public name of its module, or as a verb of the
    command its words.
    """
    words = {path: said(path.read_text()) for path in tests}
    files = [*tests, *(path for name, paths in modules().items() for path in paths if is_said(name, path, words))]
    found, seen = set(), set()
    while files:
        seen.add(file := files.pop())
        found |= {name for name, paths in modules().items() if file in paths}
        for one in imports(file):
            if not one.lazy or file in words:
                parents = [one.module.rsplit(".", depth)[0] for depth in range(one.module.count(".") + 1)]
                candidates = [path for name in parents for path in modules().get(name, [])]
                files += [
                    path for path in [*candidates, ROOT / f"{one.module.replace('.', '/')}.py"] if path not in seen
                ]
        files = [path for path in files if path.exists()]
    return found


def said(text: str) -> frozenset[str]:
    """Return the words of a text, once more in quotes those that stand alone in them."""
    return frozenset(re.findall(r"\w+", text)) | frozenset(re.findall(r'"\w+"', text))


def is_said(module: str, path: Path, words: dict[Path, frozenset[str]]) -> bool:
    """Whether a test says the module's name, or its verb as words of a command, or a name that it defines."""
    verb = [f'"{word}"' for word in module.removeprefix("msgq.cli.").split(".")]
    if any(those.issuperset(verb if module.startswith("msgq.cli.") else module.split(".")) for those in words.values()):
        return True
    tree = ast.parse(path.read_text() if path.suffix == ".py" else "")
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))} - {"command"}
    return any(those & names for those in words.values())


def test_each_module_is_loaded_by_a_fast_test() -> None:
    tests = {path for folder in ("tests", "examples") for path in (ROOT / folder).rglob("*.py")} - {Path(__file__)}
    fast = [path for path in tests if not path.name.startswith("test_") or has_fast_test(path)]
    assert modules().keys() - reached(fast) - ALONE.keys() == set()


def test_what_is_slow_is_known(tmp_path: Path) -> None:
    """A test of the test."""
    file = tmp_path / "test_it.py"
    slow, fast = "@pytest.mark.slow\ndef test_a(): ...\n", "@pytest.mark.watchdog(3)\ndef test_b(): ...\n"
    some = "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.slow)])\ndef test_c(x): ...\n"
    for text, expected in {
        slow: False,
        slow + fast: True,
        some: True,
        "pytestmark = [pytest.mark.slow]\n" + fast: False,
        "class TestA:\n    def test_d(self, endpoint): ...\n": True,
        "def test_e(spark): ...\n": False,
    }.items():
        file.write_text(text)
        assert has_fast_test(file) is expected, text


def test_what_nobody_says_is_seen(tmp_path: Path) -> None:
    """A test of the test."""
    module, test = tmp_path / "phantom.py", tmp_path / "test_it.py"
    module.write_text("def materialise(): ...\n")
    for text, expected in {"run('a')": False, "import msgq.phantom": True, "materialise()": True}.items():
        assert is_said("msgq.phantom", module, {test: said(text)}) is expected, text
    for text, expected in {"a list of bags": False, 'run("bag", "list")': True}.items():
        assert is_said("msgq.cli.bag.list", module, {test: said(text)}) is expected, text

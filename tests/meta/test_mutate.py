"""Tests of tools.mutate: the mutants of a module, and the verdicts on the mutants of a small tree."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.cases import each_case
from tools.mutate import run
from tools.mutate.copies import Copy, NotRunError
from tools.mutate.operators import mutants
from tools.mutate.run import (
    KILLED,
    NO_TIME,
    NOT_REACHED,
    NOT_RUN,
    SURVIVED,
    TIMED_OUT,
    is_complete,
    mutate,
    report,
)


def list_changes(source: str) -> list[str]:
    return [f"{mutant.old} -> {mutant.new}" for mutant in mutants("a.py", source.encode())]


def changes_in_function(body: str) -> list[str]:
    return list_changes(f"def function(a, b):\n{indent(dedent(body), '    ')}")


@each_case(
    "body, expected",
    [
        ("a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("a == b", ["a == b -> a != b"]),
        ("a in b", ["a in b -> a not in b"]),
        ("a + b", ["a + b -> a - b"]),
        ("a // b", ["a // b -> a * b"]),
        ("a and b", ["a and b -> a or b"]),
        ("not a", ["not a -> a"]),
        ("a[3]", ["3 -> 4"]),
        ("a[True]", ["True -> False"]),
        ("a or 'text'", ["a or 'text' -> a and 'text'"]),
        ("a()", ["a() -> pass"]),
        ("a += b", ["a += b -> pass", "a += b -> a -= b"]),
        ("a.b = b", ["a.b = b -> pass"]),
        ("a = b", ["a = b -> pass"]),
        ("del a", ["del a -> pass"]),
        ("raise a(1 + 2)", ["raise a(1 + 2) -> pass"]),
        ("return a", ["return a -> return None"]),
        ("if a:\n    b", ["a -> not a"]),
        ("while a:\n    break", ["a -> not a", "break -> pass"]),
        ("b[a if b else 'c']", ["b -> not b"]),
    ],
)
def test_each_mutant_of_statement_changes_one_part(body: str, expected: list[str]) -> None:
    assert changes_in_function(body) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text with 1 + 2."""',
        "__all__ = ['a' + 'b']",
        "Number = int | float",
        "a: list[1 < 2]",
        "if TYPE_CHECKING:\n    import a",
        "@decorated(1)\nclass A:\n    pass",
        "def function(a: 1 < 2, b=3) -> 4:\n    pass",
        "def function():\n    c = d",
        "def function():\n    _logger.warning('a')",
        "def function():\n    f'{1 + 2}'",
        "match a:\n    case -1:\n        pass",
    ],
)
def test_mutants_leave_texts_types_and_names_unchanged(source: str) -> None:
    assert list_changes(source) == []


def test_mutant_replaces_bytes_only_at_its_offset() -> None:
    source = "def ä(b):\n    return 'ä', (b +\n        1) * 2  # ä\n".encode()
    changed = {mutant.new: mutant.apply(source).decode() for mutant in mutants("a.py", source)}
    assert changed == {
        "return None": "def ä(b):\n    return None  # ä\n",
        "(b + 1) // 2": "def ä(b):\n    return 'ä', ((b + 1) // 2)  # ä\n",
        "b - 1": "def ä(b):\n    return 'ä', ((b - 1)) * 2  # ä\n",
        "2": "def ä(b):\n    return 'ä', (b +\n        (2)) * 2  # ä\n",
        "3": "def ä(b):\n    return 'ä', (b +\n        1) * (3)  # ä\n",
    }


def test_mutation_report_has_counts_and_surviving_mutants() -> None:
    first, second, third = mutants("a.py", b"def function(a):\n    return a\n\nb = 1 < 2\n")[:3]
    assert report({first: KILLED, third: SURVIVED, second: NOT_REACHED}).splitlines() == [
        "3 mutants: 1 killed, 1 survived, 1 not reached, 0 timed out, 0 no time, 0 not run",
        "not reached: a.py:4: 1 < 2 -> 1 <= 2",
        "survived: a.py:4: 1 < 2 -> 1 >= 2",
    ]


@pytest.mark.parametrize(
    ("verdicts", "complete"),
    [
        ([SURVIVED, NOT_REACHED], True),
        ([SURVIVED, NO_TIME], True),
        ([NO_TIME, NO_TIME], False),
        ([NO_TIME, NOT_REACHED], False),
        ([SURVIVED, NOT_RUN], False),
    ],
)
def test_mutation_report_without_executed_tests_is_incomplete(verdicts: list[str], complete: bool) -> None:
    both = mutants("a.py", b"1 < 2")[:2]
    assert is_complete(dict(zip(both, verdicts, strict=True))) is complete


MODULE = '''"""A module whose tests have gaps."""

FACTORS = {1: 10}
LEAST = FACTORS[1]


def clip(value):
    return LEAST if value < LEAST else value


def forgotten(value):
    return value


def slow(value):
    return value
'''
TESTS = """
import pytest

from product.clip import clip, slow


@pytest.mark.parametrize(("value", "expected"), [(3, 10), (30, 30)])
def test_clip_returns_at_least_ten(value, expected):
    assert clip(value) == expected


def test_clip_fails_in_each_run():
    assert clip(3) == 0


@pytest.mark.ci
def test_clip_of_ten_is_ten():
    assert clip(10) == 10


@pytest.mark.ci
@pytest.mark.xdist_group("slow")
def test_slow_returns_its_value():
    assert slow(1) == 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "product").mkdir(parents=True)
    (root / "product" / "clip.py").write_text(MODULE)
    (root / "test_clip.py").write_text(TESTS)
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    ci\n    nightly\n")
    return root


def test_python_imports_each_module_version_of_mutate_copy(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    copy, module = Copy(tree, tmp_path / "copy"), tmp_path / "module.py"
    said = []
    for version in range(3):  # versions of the same size, within a second
        copy._write(module, b"print(%d)" % version)
        said.append(subprocess.run([sys.executable, "-c", "import module"], cwd=tmp_path, capture_output=True).stdout)
    assert said == [b"0\n", b"1\n", b"2\n"]


def run_mutate(root: Path, seconds: float = 1000) -> dict[str, str]:
    found = mutate(root, ["product/*.py"], [], None, 0, seconds)
    return {str(mutant).removeprefix("product/clip.py:"): verdict for mutant, verdict in found.items()}


@pytest.mark.ci
def test_mutate_reports_verdict_of_each_mutant_and_removes_files(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert run_mutate(tree) == {
        "3: 1 -> 2": KILLED,  # the module cannot be imported
        "3: 10 -> 11": KILLED,
        "4: 1 -> 2": KILLED,
        "8: return LEAST if value < LEAST else value -> return None": KILLED,
        "8: value < LEAST -> value <= LEAST": SURVIVED,
        "8: value < LEAST -> value >= LEAST": KILLED,
        "12: return value -> return None": NOT_REACHED,
        "16: return value -> return None": KILLED,  # by a test marked ci
    }
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before
    assert capsys.readouterr().out == "tests that fail or are skipped without a mutant, and are not used: 1\n"
    assert list(tmp_path.iterdir()) == [tree]


@pytest.mark.ci
def test_mutate_of_endless_loop_times_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SLACK_SECONDS", 2.0)
    (tree / "product" / "clip.py").write_text("def clip(value):\n    while value:\n        break\n")
    (tree / "test_clip.py").write_text(
        "from product.clip import clip\n\n\ndef test_clip_returns_at_least_ten():\n    clip(1)\n"
    )
    assert run_mutate(tree)["3: break -> pass"] == TIMED_OUT


@pytest.mark.ci
def test_mutate_reports_not_run_if_pytest_cannot_start(tree: Path, tmp_path: Path) -> None:
    """The conftest simulates a machine without memory: it fails in each run of pytest after the first."""
    (tree / "product" / "clip.py").write_text("def clip(value):\n    return max(value, len('ten bytes!'))\n")
    (tree / "test_clip.py").write_text(TESTS.replace(", slow", ""))
    lines = f"import pathlib\nfile = pathlib.Path({str(tmp_path / 'second')!r})\nassert not file.exists()\n"
    (tree / "conftest.py").write_text(f"{lines}def pytest_unconfigure():\n    file.touch()\n")
    assert set(run_mutate(tree).values()) == {NOT_RUN}


@pytest.mark.ci
@pytest.mark.parametrize("broken", ["import nothing_such", "def test_always_fails(): assert False"])
def test_mutate_without_passing_test_raises(tree: Path, broken: str) -> None:
    (tree / "test_clip.py").write_text(broken)
    with pytest.raises(NotRunError, match="without a mutant"):
        run_mutate(tree)


def test_mutate_with_time_limit_zero_raises(tree: Path) -> None:
    with pytest.raises(NotRunError, match="without a mutant"):
        run_mutate(tree, seconds=0)


def test_mutate_without_matching_module_raises(tree: Path) -> None:
    with pytest.raises(NotRunError, match=r"no mutants in nothing/\*\.py"):
        mutate(tree, ["nothing/*.py"], [], None, 0, 1)

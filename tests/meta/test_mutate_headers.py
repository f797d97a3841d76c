"""Tests of tools.mutate.headers: the list of mutants is up to date, and each mutant gets its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.headers.test_headers import NAMES
from tests.support import ROOT
from tools.mutate.copies import NotRunError
from tools.mutate.headers.mutant import Mutant, all_mutants, mutants_of
from tools.mutate.headers.run import mutate, report
from tools.mutate.run import KILLED, SURVIVED

MUTANTS = all_mutants()
HEADER = "int two(void) { /* a\n comment */ return 2; }\nint three(void) { return 3; }\n"


@each_case("path", sorted({mutant.path for mutant in MUTANTS}))
def test_header_mutants_change_code_that_occurs_once(path: str) -> None:
    source = (ROOT / path).read_bytes()
    for mutant in MUTANTS:
        assert mutant.path != path or mutant.apply(source) != source, mutant


def test_header_mutants_differ_and_name_existing_tests() -> None:
    assert len({(mutant.path, mutant.meaning) for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.tests, mutant
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if found := re.fullmatch(r"test_header_programs_succeed\[(.*)\]", name):
                assert found[1] in NAMES, mutant
            else:
                assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), mutant


def test_header_mutant_matches_code_across_comments_and_line_breaks() -> None:
    mutant = mutants_of("a.h", "a")("three", "{ return 2; }", "{ return 3; }", "b")
    assert mutant.apply(HEADER.encode()) == b"int two(void) { return 3; }\nint three(void) { return 3; }\n"
    assert mutant.tests == ("tests/headers/test_headers.py::test_header_programs_succeed[a-b]",)


@pytest.mark.parametrize("code", ["return 4;", "int", "{ return 2; } int three(void) { return 4; }"])
def test_header_mutant_with_ambiguous_code_raises_error(code: str) -> None:
    with pytest.raises(ValueError, match=r"a\.h: wrong: its code occurs [0-9]+ times"):
        mutants_of("a.h", "a")("wrong", code, "", "b").apply(HEADER.encode())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a header and tests that read it."""
    folder = tmp_path / "tree" / "tests" / "headers"
    folder.mkdir(parents=True)
    (tmp_path / "tree" / "a.h").write_text(HEADER)
    lines = ["import pathlib", "TEXT = pathlib.Path('a.h').read_text()"]
    lines += [f"def test_{number}():\n    assert 'return {number};' in TEXT" for number in (2, 3)]
    (tmp_path / "tree" / "pytest.ini").write_text("[pytest]\n")  # the tree is the root of all names
    (folder / "test_a.py").write_text("\n".join(lines))
    return tmp_path / "tree"


def make_mutant(old: str, new: str, *numbers: int) -> Mutant:
    tests = [f"tests/headers/test_a.py::test_{number}" for number in numbers]
    return mutants_of("a.h", "a")(f"{old} -> {new} {numbers}", old, new, *tests)


@pytest.mark.ci
def test_header_mutant_is_killed_if_all_its_tests_fail(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mutants = [make_mutant("return 2;", "return 4;", 2), make_mutant("return 2;", "return 4;", 2, 3)]
    verdicts = mutate(tree, mutants, 600)
    assert [*verdicts.values()] == [KILLED, SURVIVED]
    assert "not noticed by tests/headers/test_a.py::test_3" in capsys.readouterr().out
    assert report(verdicts).splitlines() == [
        "2 mutants of headers: 1 killed, 1 survived, 0 no time, 0 not run",
        "survived: a.h: return 2; -> return 4; (2, 3)",
    ]
    assert (tree / "a.h").read_text() == HEADER


@pytest.mark.ci
def test_mutate_raises_if_test_fails_before_mutation(tree: Path) -> None:
    (tree / "a.h").write_text("return 2;")
    with pytest.raises(NotRunError, match="without a mutant"):
        mutate(tree, [make_mutant("return 2;", "return 4;", 2, 3)], 600)

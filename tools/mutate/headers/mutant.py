"""A textual mutant of a C header, and the tests that must notice it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_NO_LISTS = ("__init__", "__main__", "mutant", "run")
_SPACE = r"(?:\s|/\*(?:(?!\*/).)*\*/)+"
TESTS = "tests/headers/test_headers.py"


@dataclass(frozen=True)
class Mutant:
    """One change of a header.

    Attributes:
        path: the header, relative to the tree.
        meaning: the missing property, in one line.
        old: the code that is replaced, which occurs once. Comments and line breaks in the header do not matter.
        new: the replacement.
        tests: ids of the tests of which each must fail.
    """

    path: str
    meaning: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: {self.meaning}"

    def apply(self, source: bytes) -> bytes:
        """Return the header with the change. ValueError: the code is not there, or more than once."""
        text = source.decode()
        code = re.compile(_SPACE.join(map(re.escape, self.old.split())), re.DOTALL)
        matches = list(code.finditer(text))
        if len(matches) != 1:
            raise ValueError(
                f"{self}: its code occurs {len(matches)} times, not once; change the mutant with the header"
            )
        return (text[: matches[0].start()] + self.new + text[matches[0].end() :]).encode()


def mutants_of(path: str, program: str) -> Callable[..., Mutant]:
    """Return a function that makes mutants of a header.

    A test is an id, the name of one of tests/headers/`program`.c, or "PROGRAM-NAME" for one of another program.
    """

    def test_id(test: str) -> str:
        return (
            test
            if "::" in test
            else f"{TESTS}::test_header_programs_succeed[{test if '-' in test else f'{program}-{test}'}]"
        )

    def mutant(meaning: str, old: str, new: str, *tests: str) -> Mutant:
        return Mutant(path, meaning, old, new, tuple(map(test_id, tests)))

    return mutant


def all_mutants() -> list[Mutant]:
    """Return the mutants that the modules of this package list, in the order of their paths."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = [import_module(f"tools.mutate.headers.{name}") for name in names if name not in _NO_LISTS]
    mutants = [mutant for module in modules for mutant in module.MUTANTS]
    return sorted(mutants, key=lambda mutant: mutant.path)

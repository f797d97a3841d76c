"""Tests of tests.cases: each case runs, and a failure hides no other case."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import CasesError, each_case


class Resettable:
    """A fixture that counts what the cases did since its last reset."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def close(self) -> None:
        self.seen.clear()


def test_each_case_runs_all_cases_and_names_those_that_fail() -> None:
    seen: list[int] = []

    @each_case("number, limit", [(1, 2), (2, 1), (3, 4), (4, 3)])
    def check(number: int, limit: int) -> None:
        seen.append(number)
        if number == 4:
            pytest.fail("four")
        assert number < limit

    with pytest.raises(CasesError, match=r"^2 cases fail: 2-1, 4-3\n") as caught:
        check()
    assert seen == [1, 2, 3, 4]
    assert {name: text.splitlines()[-1] for name, text in caught.value.tracebacks.items()} == {
        "2-1": "AssertionError: assert 2 < 1",
        "4-3": "Failed: four",
    }


def test_each_case_combines_decorators_and_names_combinations() -> None:
    @each_case("letter", "ab")
    @each_case("truth", [True, False], ["yes", "no"])
    def check(letter: str, truth: bool) -> None:
        assert truth or letter == "a"

    with pytest.raises(CasesError) as caught:
        check()
    assert [*caught.value.tracebacks] == ["b-no"]


@each_case("number", [1, 2, 3], reset="thing.close")
def check_reset(thing: Resettable, number: int) -> None:
    thing.seen.append(number)
    assert thing.seen == [number]


def test_each_case_resets_fixture_before_each_case() -> None:
    check_reset(thing=Resettable())


@each_case("number", [1, 2])
def test_each_case_leaves_other_parameters_to_fixtures(endpoint: str, number: int) -> None:
    assert endpoint
    assert number in (1, 2)


def test_each_case_without_cases_or_with_equal_names_is_refused() -> None:
    with pytest.raises(AssertionError, match="two cases have the same name"):
        each_case("value", [1, "1"])
    with pytest.raises(AssertionError):
        each_case("value", [])(lambda value: None)()

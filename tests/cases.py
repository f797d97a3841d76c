"""Many small cases in one test. A test of its own for each case would take 2 to 5 ms of processor time more."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from textwrap import shorten
from typing import Any

import pytest

NAME_LENGTH_MAX = 100


class CasesError(AssertionError):
    """Some cases of a test fail. `tracebacks` has the traceback of each, by the name of the case."""

    def __init__(self, tracebacks: dict[str, str]) -> None:
        names, texts = ", ".join(tracebacks), (f"\ncase {name}\n{text}" for name, text in tracebacks.items())
        super().__init__(f"{len(tracebacks)} cases fail: {names}\n{''.join(texts)}")
        self.tracebacks = tracebacks


def each_case(
    names: str, cases: Iterable[Any], ids: Iterable[str] | None = None, *, reset: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with the arguments of each case, as `pytest.mark.parametrize` does, but as one test.

    All cases share the fixtures. Before each case, `reset` runs: "FIXTURE.METHOD". Several of these decorators make all
    combinations of their cases; the one next to the function resets.
    """
    parameters = [name.strip() for name in names.split(",")]
    rows = [(case,) if len(parameters) == 1 else tuple(case) for case in cases]
    named = dict(zip(ids or ("-".join(map(_name, row)) for row in rows), rows, strict=True))
    assert len(named) == len(rows), "two cases have the same name"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            def check(*row: Any) -> None:
                if reset:
                    fixture, method = reset.split(".")
                    getattr(fixtures[fixture], method)()
                test(*args, **fixtures, **dict(zip(parameters, row, strict=True)))

            check_each(check, named)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest reads it
        return run

    return decorate


def check_each(check: Callable[..., None], cases: Mapping[str, tuple[Any, ...]]) -> None:
    """Call `check` with the arguments of each case; CasesError with the tracebacks of all that fail."""
    assert cases
    failures: dict[str, str] = {}
    for name, arguments in cases.items():
        try:
            check(*arguments)
        except CasesError as error:
            failures |= {f"{name}-{inner}": text for inner, text in error.tracebacks.items()}
        except (Exception, pytest.fail.Exception) as error:
            failures[name] = _text(error)
    if failures:
        raise CasesError(failures)


def _name(value: Any) -> str:
    text = value if isinstance(value, str) else getattr(value, "__qualname__", None) or repr(value)
    return shorten(text, NAME_LENGTH_MAX, placeholder="...")


def _text(error: BaseException) -> str:
    """Return the error with its traceback, without the calls of this module."""
    trace = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))

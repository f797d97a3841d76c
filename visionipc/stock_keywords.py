"""Stock's names of keyword arguments, in addition to msgq's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def accept_stock_names(**current_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Also accept stock's names of keywords: ``@accept_stock_names(tp="type")``.

    Type checkers know only msgq's names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs:
                for name in current_names.keys() & kwargs.keys():
                    if current_names[name] in kwargs:
                        raise TypeError(f"{function.__name__}() got {current_names[name]!r} twice, once as {name!r}")
                    kwargs[current_names[name]] = kwargs.pop(name)
            return function(*args, **kwargs)

        return wrapper

    return decorate

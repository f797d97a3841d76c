"""Stock's spelling of keywords, beside ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def also(**ours: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take keywords under stock's names as well: ``@also(tp="type")``. Type checkers know ours only."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def spelled(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs:
                for name in ours.keys() & kwargs.keys():
                    if ours[name] in kwargs:
                        raise TypeError(f"{function.__name__}() got {ours[name]!r} twice, once as {name!r}")
                    kwargs[ours[name]] = kwargs.pop(name)
            return function(*args, **kwargs)

        return spelled

    return decorate

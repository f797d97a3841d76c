"""Deaths between any two changes of a lake."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from tests.support import Child


class Killed(BaseException):
    """What nobody catches."""


def raise_killed() -> None:
    raise Killed


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_killed(function: Callable[..., None], *arguments: Any) -> bool:
    """Let a child call a function; return whether it has killed itself."""
    with Child(function, *arguments) as child:
        code = child.process.wait()
    assert code in (0, -signal.SIGKILL)
    return code != 0


@contextmanager
def die_at(place: int, die: Callable[[], None], *methods: tuple[type, str]) -> Iterator[None]:
    """Number the calls of methods, of all together; die instead of the first one at 0, right after it at 1, ..."""
    places = count(0, 2)

    def deadly(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            moment = next(places)
            if moment == place:
                die()
            result = method(*arguments, **options)
            if moment + 1 == place:
                die()
            return result

        return call

    with ExitStack() as stack:
        for kind, name in methods:
            stack.enter_context(patch.object(kind, name, deadly(getattr(kind, name))))
        yield

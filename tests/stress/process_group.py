"""Starting the processes of a stress test, and bringing them to an end."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import msgq
from tests.fork_server import CHILD_LIFETIME
from tests.support import LONGER, Child

Role = tuple[Callable[..., Any], *tuple[Any, ...]]


class ProcessGroup:
    """The processes of a test. All are gone when it ends."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def start(self, function: Callable[..., Any], *args: Any) -> Child:
        """Start a role and wait until it is connected."""
        return self.start_all([(function, *args)])[0]

    def start_all(self, roles: list[Role]) -> list[Child]:
        """The same for many, which start side by side."""
        children = [self._stack.enter_context(Child(run_role, f.__module__, f.__name__, args)) for f, *args in roles]
        for child in children:
            assert child.hear() == "ready"
        return children

    def start_child(self, function: Callable[..., Any], *args: Any) -> Child:
        """Start a role that says something else first."""
        return self._stack.enter_context(Child(run_role, function.__module__, function.__name__, args))

    def close(self) -> None:
        self._stack.close()


def run_role(module: str, name: str, args: list[Any]) -> Any:
    """Child: play a role, with a watchdog as patient as the test."""
    faulthandler.dump_traceback_later(CHILD_LIFETIME * max(LONGER, 1), exit=True)
    return getattr(importlib.import_module(module), name)(*args)


def finish(children: list[Child]) -> list[Any]:
    """Say that it is over; return what each one reports."""
    for child in children:
        with contextlib.suppress(BrokenPipeError):  # one that failed has ended; result() says so
            child.say("over")
    return [child.result() for child in children]


@contextlib.contextmanager
def ring(endpoint: str, data_bytes: int) -> Iterator[None]:
    """Make the segment, of this size, before anybody connects."""
    msgq.sub_sock(endpoint, segment_size=data_bytes).close()
    yield
    living = [info.participant.pid for info in msgq.stats.topic(endpoint).subscribers if info.participant.alive]
    assert not living, "subscribers that were closed are still registered"

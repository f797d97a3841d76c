"""A thread of the model, and its operations."""

from collections.abc import Generator
from typing import Any, TypeVar

from .memory import Observer

Op = tuple[Any, ...]  # the name of a method of `Machine`, and its arguments
T = TypeVar("T")
Steps = Generator[Op, Any, T]


class Task(Observer):
    """A thread of the model: a generator of operations."""

    def __init__(self, name: str, steps: Steps[Any]) -> None:
        super().__init__()
        self.name = name
        self.steps = steps
        self.next_op: Op | None = next(steps)  # None: finished, or killed
        self.process = [self]  # all threads of the process, which die together
        self.taken = 0  # operations executed
        self.kill_at = -1  # die before this operation (or the next one that begins with kill_op); -1: live
        self.kill_op: Op = ()
        self.asleep = False  # True while it is in futex_wait
        self.dead = False  # killed
        self.closed = False  # left in order
        self.registered = True  # registered for membarrier
        self.paused_until = 0
        self.unbroken = False  # is not preempted
        self.is_writer = False  # the schedule waits for it to finish

    @property
    def finished(self) -> bool:
        """It takes no further step."""
        return self.next_op is None

    def ready(self) -> bool:
        """Can it take a step?"""
        op = self.next_op
        return op is not None and not self.asleep and (op[0] != "until" or op[1]())

    def may_go_on(self, clock: int) -> bool:
        """In the same burst: it neither sleeps, nor polls, nor blocks."""
        op = self.next_op
        return op is not None and not self.asleep and op[0] != "until" and self.paused_until <= clock

    def dies_now(self) -> bool:
        """Is it killed instead of taking a step?"""
        op = self.next_op or ()
        return 0 <= self.kill_at <= self.taken and op[: len(self.kill_op)] == self.kill_op

    def advance(self, result: Any) -> None:
        """Hand an operation's result to the generator and take its next one."""
        self.taken += 1
        try:
            self.next_op = self.steps.send(result)
        except StopIteration:
            self.next_op = None

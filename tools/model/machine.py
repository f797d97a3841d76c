"""The machine under the protocol: memory, plus what the kernel does (membarrier, futex, signals, death)."""

from collections.abc import Callable
from typing import Any

from .memory import ACQUIRE, RELAXED, SEQ_CST, Memory
from .task import Task


class Machine(Memory):
    """Executes operations on behalf of tasks; `who` is the one that yielded it."""

    tasks: list[Task]
    lock_owner: Task | None = None  # of the flock
    signalled = False  # a signal is pending
    clock = 0

    def load_strong(self, actor: Task, location: str) -> Any:
        """Behind all releases of this thread."""
        self.fence(actor, SEQ_CST)
        return self.load(actor, location, ACQUIRE)

    def load_x86(self, actor: Task, location: str) -> Any:
        """Nothing keeps it behind a store that is still on its way."""
        return self.load(actor, location, ACQUIRE)

    def rmw_x86(self, actor: Task, location: str, change: Callable[[Any], Any]) -> Any:
        """A full fence as well."""
        self.fence(actor, SEQ_CST)
        before = self.rmw(actor, location, change)
        self.fence(actor, SEQ_CST)
        return before

    def membarrier(self, actor: Task) -> None:
        """A full fence on the caller and, in some order, on every registered thread."""
        self.fence(actor, SEQ_CST)
        remaining = [task for task in self.tasks if task is not actor and task.registered and not task.dead]
        while remaining:
            self.fence(remaining.pop(int(self.rng.random() * len(remaining))), SEQ_CST)
        self.fence(actor, SEQ_CST)

    def futex_wait(self, actor: Task, location: str, unchanged: Callable[[Any], bool]) -> bool:
        """Compare and fall asleep in one step, as the kernel does under its lock. False: the word had changed."""
        self.fence(actor, SEQ_CST)
        actor.asleep = unchanged(self.load(actor, location, RELAXED))
        return actor.asleep

    def futex_wake(self, actor: Task) -> None:
        """All of them, whatever word they sleep on."""
        self.fence(actor, SEQ_CST)
        for task in self.tasks:
            task.asleep = False

    def tkill(self, actor: Task) -> None:
        """Send a signal. Several pending signals are one."""
        self.fence(actor, SEQ_CST)
        self.signalled = True

    def until(self, actor: Task, condition: Callable[[], bool]) -> None:
        """The scheduler saw that it is true."""
        self.fence(actor, SEQ_CST)

    def is_alive(self, actor: Task, task: Task) -> bool:
        """Asked of the kernel, or of a freed entry: who learns that a publisher is gone sees all that it wrote."""
        ended = task.dead or task.closed
        if ended:
            self.fence(actor, SEQ_CST)
        return not ended

    def preempt(self, actor: Task, task: Task) -> None:
        """Complete all pending writes of `task`. Its later loads are not older than this moment."""
        self.fence(task, SEQ_CST)
        self.fence(actor, SEQ_CST)
        self.fence(task, SEQ_CST)

    def pause(self, actor: Task) -> None:
        """Pause a task for some steps, unless no other task can run."""
        actor.paused_until = self.clock + 1 + int(self.rng.random() * 12)

    def kill(self, task: Task) -> None:
        """Kill a task. Its executed writes become visible, and the kernel releases its lock."""
        task.steps.close()
        task.next_op, task.dead = None, True
        self.fence(task, SEQ_CST)
        if self.lock_owner is task:
            self.lock_owner = None

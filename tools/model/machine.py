"""The machine under the protocol: memory, plus what the kernel does (membarrier, futex, signals, death)."""

from collections.abc import Callable
from typing import Any

from .memory import ACQUIRE, RELAXED, SEQ_CST, Memory, Write
from .task import Task


class Machine(Memory):
    """Executes operations on behalf of tasks; `who` is the one that yielded it."""

    tasks: list[Task]
    lock_owner: Task | None = None  # owner of the flock
    signalled = False  # a signal is pending
    clock = 0

    def load_strong(self, actor: Task, location: str) -> Any:
        """Behind all releases of this thread."""
        self.fence(actor, SEQ_CST)
        return self.load(actor, location, ACQUIRE)

    def load_x86(self, actor: Task, location: str) -> Any:
        """Nothing keeps it behind a store that is still on its way."""
        return self.load(actor, location, ACQUIRE)

    def load_c11(self, actor: Task, location: str) -> Any:
        """What the language promises and no more: behind all sequentially consistent writes of this one location."""
        actor.view[location] = max(actor.view.get(location, 0.0), self.flushed.get(location, 0.0))
        return self.load(actor, location, ACQUIRE)

    def rmw_x86(self, actor: Task, location: str, change: Callable[[Any], Any]) -> Any:
        """A full fence as well."""
        self.fence(actor, SEQ_CST)
        before = self.rmw(actor, location, change)
        self.fence(actor, SEQ_CST)
        return before

    def rmw_c11(self, actor: Task, location: str, change: Callable[[Any], Any]) -> Any:
        """Seen by all sequentially consistent loads of this location that come later."""
        before = self.rmw(actor, location, change)
        self.flushed[location] = actor.view[location]
        return before

    def rmw_relaxed(self, actor: Task, location: str, change: Callable[[Any], Any]) -> Any:
        """Hands on what the write before carried, and nothing of its own."""
        write = self.histories[location][-1]
        actor.view[location] = write.stamp + 1.0
        self.histories[location].append(Write(write.stamp + 1.0, change(write.value), write.view, attached=True))
        return write.value

    def cas_x86(self, actor: Task, location: str, expected: Any, desired: Any) -> Any:
        """A locked instruction: a full fence as well."""
        self.fence(actor, SEQ_CST)
        current = self.cas(actor, location, expected, desired)
        self.fence(actor, SEQ_CST)
        return current

    def cas_c11(self, actor: Task, location: str, expected: Any, desired: Any) -> Any:
        """The same as an exchange."""
        current = self.cas(actor, location, expected, desired)
        if current == expected:
            self.flushed[location] = actor.view[location]
        return current

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
        """Kill all threads of a process. Their executed writes become visible, and the kernel releases its lock."""
        for thread in task.process:
            if thread.closed:
                continue
            thread.steps.close()
            thread.next_op, thread.dead = None, True
            self.fence(thread, SEQ_CST)
            if self.lock_owner is thread:
                self.lock_owner = None

"""The machine under the protocol: memory, plus what the kernel does (membarrier, futex, signals, death)."""

from collections.abc import Callable
from typing import Any

from .memory import ACQUIRE, RELAXED, SEQ_CST, Memory, Observer
from .ops import Op, Steps


class Task(Observer):
    """A thread of the model: a generator of operations."""

    def __init__(self, name: str, steps: Steps[Any]) -> None:
        super().__init__()
        self.name = name
        self.steps = steps
        self.next_op: Op | None = next(steps)  # None: finished, or killed
        self.taken = 0  # operations executed
        self.kill_at = -1  # die before this operation (or the next one that begins with kill_op); -1: live
        self.kill_op: Op = ()
        self.asleep = False  # in futex_wait
        self.dead = False  # killed
        self.closed = False  # left in order
        self.registered = True  # for membarrier
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


class Machine(Memory):
    """Executes operations on behalf of tasks; `who` is the one that yielded it."""

    tasks: list[Task]
    lock_owner: Task | None = None  # of the flock
    signalled = False  # a signal is pending
    clock = 0

    def load_strong(self, who: Task, location: str) -> Any:
        """Behind all releases of this thread."""
        self.fence(who, SEQ_CST)
        return self.load(who, location, ACQUIRE)

    def membarrier(self, who: Task) -> None:
        """A full fence on the caller and, in some order, on every registered thread."""
        self.fence(who, SEQ_CST)
        others = [task for task in self.tasks if task is not who and task.registered and not task.dead]
        while others:
            self.fence(others.pop(int(self.rng.random() * len(others))), SEQ_CST)
        self.fence(who, SEQ_CST)

    def futex_wait(self, who: Task, location: str, unchanged: Callable[[Any], bool]) -> bool:
        """Compare and fall asleep in one step, as the kernel does under its lock. False: the word had changed."""
        self.fence(who, SEQ_CST)
        who.asleep = unchanged(self.load(who, location, RELAXED))
        return who.asleep

    def futex_wake(self, who: Task) -> None:
        """All of them, whatever word they sleep on."""
        self.fence(who, SEQ_CST)
        for task in self.tasks:
            task.asleep = False

    def tkill(self, who: Task) -> None:
        """Several signals that nobody took yet are one."""
        self.fence(who, SEQ_CST)
        self.signalled = True

    def until(self, who: Task, condition: Callable[[], bool]) -> None:
        """The scheduler saw that it is true."""
        self.fence(who, SEQ_CST)

    def is_alive(self, who: Task, task: Task) -> bool:
        """Asked of the kernel, or of a freed entry: who learns that a publisher is gone sees all that it wrote."""
        gone = task.dead or task.closed
        if gone:
            self.fence(who, SEQ_CST)
        return not gone

    def preempt(self, who: Task, task: Task) -> None:
        """Whatever `task` had under way is done, and when it runs again, it reads anew."""
        self.fence(task, SEQ_CST)
        self.fence(who, SEQ_CST)
        self.fence(task, SEQ_CST)

    def pause(self, who: Task) -> None:
        """For some steps, unless nobody else can take one."""
        who.paused_until = self.clock + 1 + int(self.rng.random() * 12)

    def kill(self, task: Task) -> None:
        """SIGKILL: nothing more is executed; what was executed becomes visible; the kernel drops the lock."""
        task.steps.close()
        task.next_op, task.dead = None, True
        self.fence(task, SEQ_CST)
        if self.lock_owner is task:
            self.lock_owner = None

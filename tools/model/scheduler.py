"""One random schedule: who runs when, how long, who is slow, who is killed; all from one seed."""

from math import log
from random import Random
from typing import Any

from .machine import Machine
from .oracle import Violation
from .task import Op, Steps, Task

MOST_STEPS = 4000
SHOWN_RESULTS = ("load", "rmw", "cas", "futex_wait", "is_", "open_")  # first letters of the names of these operations


class Schedule:
    """The tasks of one scenario on one machine, and the choices between them.

    A schedule draws its own manner first: how long threads run before they are preempted, and whether one thread is
    slow, so that the ring is lapped under it.
    """

    def __init__(self, rng: Random, machine: Machine, traced: bool) -> None:
        self.rng = rng
        self.machine = machine
        self.tasks: list[Task] = []
        machine.tasks = self.tasks
        self.trace: list[str] | None = [] if traced else None
        self.burst = (1.0, 4.0, 12.0, 40.0)[int(rng.random() * 4)]  # mean steps before a preemption
        self.slow: Task | None = None

    def spawn(self, name: str, steps: Steps[Any], killed_within: int = 0) -> Task:
        """Add a thread. `killed_within`: it dies before one of so many first steps."""
        task = Task(name, steps)
        if killed_within:
            task.kill_at = int(self.rng.random() * killed_within)
        self.tasks.append(task)
        return task

    def run(self) -> None:
        """Run until no task can continue. Raises Violation, also after too many steps."""
        machine, rng = self.machine, self.rng
        if rng.random() < 0.6:
            self.slow = self.tasks[int(rng.random() * len(self.tasks))]
        all_published = False
        while ready := [task for task in self.tasks if task.ready()]:
            task = self._choose([t for t in ready if t.paused_until <= machine.clock] or ready)
            burst = machine.clock + 1 + int(-log(1.0 - rng.random()) * self.burst)
            self._step(task)
            while task.may_go_on(machine.clock) and (machine.clock < burst or task.unbroken):
                self._step(task)
            if not all_published and self.writers_finished():
                machine.publish_all_writes(self.tasks)
                all_published = True

    def writers_finished(self) -> bool:
        """Nothing more will be published."""
        return not any(task.is_writer and not task.finished for task in self.tasks)

    def _choose(self, ready: list[Task]) -> Task:
        task = ready[int(self.rng.random() * len(ready))]
        if task is self.slow and self.rng.random() < 0.9:
            task = ready[int(self.rng.random() * len(ready))]
        return task

    def _step(self, task: Task) -> None:
        machine, op = self.machine, task.next_op
        assert op is not None
        machine.clock += 1
        if machine.clock > MOST_STEPS:
            raise Violation("stuck", f"no end after {MOST_STEPS} steps; {task.name} is at {op}")
        if task.kill_at >= 0 and task.dies_now():
            self._note(task, ("is killed",), None)
            machine.kill(task)
            return
        result = getattr(machine, op[0])(task, *op[1:])
        if self.trace is not None:
            self._note(task, op, result)
        task.advance(result)

    def _note(self, task: Task, op: Op, result: Any) -> None:
        if self.trace is None:
            return
        text = " ".join(str(getattr(word, "__name__", word)) for word in op if not isinstance(word, Task))
        if op[0].startswith(SHOWN_RESULTS):
            text += f" -> {result}"
        if op[0].startswith("load") and result != (newest := self.machine.newest(op[1])):
            text += f"   (stale: the newest is {newest})"
        self.trace.append(f"{self.machine.clock:5}  {task.name:<12} {text}")

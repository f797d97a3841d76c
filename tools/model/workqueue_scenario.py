"""The cast of one schedule on a work queue, and what must hold when all is quiet."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from .channel import stop_after
from .ops import pause, until
from .oracle import Violation
from .scheduler import Schedule
from .task import Op, Steps, Task
from .workqueue_handle import Handle
from .workqueue_receiver import Job, Receiver
from .workqueue_sender import Sender
from .workqueue_shared import (
    BITS,
    FREE,
    KINDS,
    NOTIFY_SEQ,
    SENDERS,
    WAITING,
    WATCHING,
    Rules,
    SharedQueue,
    generation,
    row_eventcount,
    uid,
    word,
)
from .workqueue_sleep import WAIT_FOREVER

LONG = 1000  # steps: longer than any delay
LOOKS = 3  # of those who sleep, after somebody was killed or stopped


class QueueModel:
    """One schedule of one scenario, ready to run. The last row is the auditor's."""

    def __init__(self, rng: Random, rules: Rules, traced: bool, *, blocks: int, width: int, rows: int) -> None:
        self.rng = rng
        self.shared = SharedQueue(rng, rules, blocks=blocks, width=width, rows=rows + 1)
        self.kernel = self.shared.kernel
        self.schedule = Schedule(rng, self.kernel, traced)
        self.taken_rows = 0
        self.ends = 0  # participants may be killed or stopped within so many steps; 0: they are not
        self.stops = True  # else: they are only killed
        self.leaves = True  # who has done all; else: it stays open
        self.idle: list[Task] = []  # those that stayed
        self.batch = 1  # messages that one is about to wake others for
        self.auditor = Receiver(self.shared, "auditor")
        self._assign_row(self.auditor, rows, self.schedule.spawn("auditor", self._peek()))

    def below(self, limit: int) -> int:
        """One of 0 .. limit - 1."""
        return int(self.rng.random() * limit)

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.rng.random() < probability

    # ---- who is there ----

    def _assign_row(self, handle: Handle, row: int, task: Task) -> None:
        handle.state.row, handle.state.generation = row, 1
        self._register(handle, task)
        self.shared.uids += 1
        self.shared.rows[row].holder = task
        self.kernel.create({generation(row): 1, uid(row): self.shared.uids})

    def _register(self, handle: Handle, task: Task) -> None:
        handle.task = task
        handle.state.threads.append(task)

    def start(
        self, handle: Handle, steps: Steps[None], *, ends: bool = True, late: bool = False, threads: int = 1
    ) -> None:
        """One that is there from the beginning, or comes when a row can be had. It may end before its time. `threads`:
        that are to come; one of several is not stopped alone."""
        how = self.rng.random() if ends and self.ends else 1.0
        lifetime = self.ends + 40 * late
        run = self._join_late(handle, steps) if late else self._run_handle(handle, steps)
        stops = how < 0.2 and self.stops and threads == 1
        if stops:
            run = stop_after(run, 1 + self.below(lifetime))
        task = self.schedule.spawn(handle.name, run, lifetime if how < 0.5 and not stops else 0)
        task.is_writer = True
        if late:
            self._register(handle, task)
        else:
            self._assign_row(handle, self.taken_rows, task)
            self.taken_rows += 1

    def _peek(self) -> Steps[None]:
        for _ in range(self.below(6)):
            yield pause()
            yield from self.auditor.best()
        yield pause()

    def _run_handle(self, handle: Handle, steps: Steps[None]) -> Steps[None]:
        yield pause()
        yield from steps
        if self.leaves or handle.closing:
            yield from handle.leave()
        else:
            self.idle.append(handle.task)

    def thread(self, owner: Handle, handle: Handle, steps: Steps[None]) -> None:
        """A second one of a handle; they die together."""
        task = self.schedule.spawn(handle.name, self._run_handle(handle, steps))
        task.is_writer = True
        self._register(handle, task)
        self.shared.multithread_rows.add(owner.state.row)
        process = self.kernel.processes.setdefault(owner.task, [owner.task])
        process.append(task)
        self.kernel.processes[task] = process

    def _join_late(self, handle: Handle, steps: Steps[None]) -> Steps[None]:
        for _ in range(15):
            yield pause()
            if any(row.vacant for row in self.shared.rows) and (yield from handle.join()):
                yield from steps
                yield from handle.leave()
                break
        else:
            handle.task.closed = True

    def clock(self, most: int) -> None:
        """Time runs out for sleepers, now and then."""

        def steps() -> Steps[None]:
            yield pause()
            for _ in range(most):
                yield pause()
                yield ("time_out",)
            task.closed = True

        task = self.schedule.spawn("clock", steps())

    # ---- what they do ----

    def sender(
        self,
        name: str,
        count: int,
        *,
        ends: bool = True,
        late: bool = False,
        threads: int = 1,
        overtaken: int = 0,
        **options: Any,
    ) -> None:
        """Send `count` messages. `overtaken`: the count with which each call begins."""
        self.batch += self.batch == 1 and options.get("batches", 0.0) > 0
        handle = Sender(self.shared, name)
        handle.overtaken_before = overtaken
        self.start(handle, self._send(handle, count, **options), ends=ends, late=late, threads=threads)
        for number in range(1, threads):
            other = Sender(self.shared, f"{name}, thread {number}", handle.state)
            self.thread(handle, other, self._send(other, count, **options))

    def _send(
        self,
        handle: Sender,
        count: int,
        *,
        priorities: int = 2,
        batches: float = 0.0,
        delays: float = 0.0,
        **options: Any,
    ) -> Steps[None]:
        for _ in range(count):
            if self.chance(delays):
                yield from handle.send_delayed(self.below(priorities), self.below(40))
            elif self.chance(batches):
                yield from handle.send_many([self.below(priorities)] * 2)
            elif not (yield from handle.send(self.below(priorities), **options)):
                yield pause()

    def receiver(self, name: str, tries: int, *, late: bool = False, **options: Any) -> None:
        """Polls so often."""
        handle = Receiver(self.shared, name)
        self.start(handle, self._poll(handle, tries, **options), late=late)

    def _poll(self, handle: Receiver, tries: int, **options: Any) -> Steps[None]:
        for _ in range(tries):
            job = yield from handle.take_or_recover(self.draw_lease_steps(options.get("lends", 0.0)))
            if job is None:
                yield pause()
            else:
                yield from self._finish_job(handle, job, **options)

    def draw_lease_steps(self, chance: float) -> int:
        """Steps until a lease is over; 0: none."""
        return 1 + self.below(40) if self.chance(chance) else 0

    def _finish_job(
        self,
        handle: Receiver,
        job: Job,
        *,
        refuses: float = 0.0,
        idles: int = 0,
        lends: float = 0.0,
        delays: float = 0.0,
    ) -> Steps[None]:
        for _ in range(self.below(idles + 1)):
            yield pause()
        if self.chance(delays):
            yield from handle.refuse_later(job, self.below(40))
        elif self.chance(refuses):
            yield from handle.refuse(job)
        else:
            yield from handle.acknowledge(job)

    def sleeper(
        self,
        name: str,
        count: int,
        *,
        patience: int = WAIT_FOREVER,
        threads: int = 1,
        overtaken: int = 0,
        **options: Any,
    ) -> None:
        """Receive `count` messages, and sleep while there is none. It leaves when time has run out too often.
        `overtaken`: the count with which each call begins."""
        handle = Receiver(self.shared, name)
        handle.overtaken_before = overtaken
        self.start(handle, self._receive(handle, count, patience, **options), threads=threads)
        for number in range(1, threads):
            other = Receiver(self.shared, f"{name}, thread {number}", handle.state)
            self.thread(handle, other, self._receive(other, count, patience, **options))

    def late_sleeper(self, name: str, count: int) -> None:
        """The same, of one that comes when a row can be had."""
        handle = Receiver(self.shared, name)
        self.start(handle, self._receive(handle, count, WAIT_FOREVER), late=True)

    def _receive(self, handle: Receiver, count: int, patience: int, **options: Any) -> Steps[None]:
        for _ in range(count):
            job = yield from handle.take_waiting(patience)
            if job is None:
                return
            yield from self._finish_job(handle, job, **options)

    def watcher(self, name: str, times: int, threads: int = 1) -> None:
        """Looks, and takes nothing."""
        handle = Receiver(self.shared, name)
        self.start(handle, handle.watch(times, self.chance(0.5)), threads=threads)
        for number in range(1, threads):
            other = Receiver(self.shared, f"{name}, thread {number}", handle.state)
            self.thread(handle, other, other.watch(times, self.chance(0.5)))

    def space_waiter(self, name: str, patience: int) -> None:
        """The same, for room."""
        handle = Sender(self.shared, name)
        self.start(handle, handle.wait_space(patience))

    def drainer(self, name: str) -> None:
        """Takes what is there when it is told."""
        handle = Receiver(self.shared, name)
        self.start(handle, handle.drain_when_notified(), ends=False)

    # ---- the run ----

    def run(self) -> None:
        """Raises Violation."""
        self.schedule.run()
        self.check_sleepers("wake", self.batch * len(self.unfinished_tasks()))
        for _ in range(LOOKS):
            self.kernel.publish_all_writes(self.schedule.tasks)
            for task in self.living_sleepers(*self.kernel.sleepers.values()):
                self.kernel.wake_late(task)
            self.schedule.run()
        self.check_sleepers("lost-wake", 0)
        self.audit()

    def unfinished_tasks(self) -> list[Task]:
        """Those that did not come to their end."""
        return [task for task in self.schedule.tasks[1:] if task.finished and not (task.closed or task in self.idle)]

    def living_sleepers(self, *locations: str) -> list[Task]:
        """Those that would act if they were woken."""
        return [task for task, at in self.kernel.asleep().items() if at in locations and not task.finished]

    def check_sleepers(self, broken: str, swallowed: int) -> None:
        """Nobody will wake them any more. `swallowed`: wakes that the stopped and the dead owe, or had."""
        self.check_announced(broken)
        waiting, room = self.shared.waiting_messages(), self.shared.room()
        rows = range(len(self.shared.rows))
        receivers = self.living_sleepers(*(row_eventcount(row, kind) for row in rows for kind in (WAITING, WATCHING)))
        if len(waiting) > swallowed and receivers:
            raise Violation(broken, f"{receivers[0].name} sleeps, and {waiting[0]} is there")
        if room > swallowed and (senders := self.living_sleepers(*(row_eventcount(row, SENDERS) for row in rows))):
            raise Violation(broken, f"{senders[0].name} sleeps, and there is room")
        if waiting and not swallowed and (waiters := self.living_sleepers(NOTIFY_SEQ)):
            raise Violation("notified", f"{waiters[0].name} sleeps, and {waiting[0]} is there")

    def check_announced(self, broken: str) -> None:
        """Whoever sleeps can be woken."""
        for kind in KINDS:
            seen = self.kernel.newest(kind)
            for row in range(len(self.shared.rows)):
                where = row_eventcount(row, kind)
                for task in self.living_sleepers(where):
                    if not {row, -1} & seen or not self.kernel.newest(where)[1]:
                        raise Violation(broken, f"{task.name} sleeps, and has no bit, or no announcement")

    def audit(self) -> None:
        """Of the dead nothing is left. Who was stopped is killed; then one that is left gets all that is there, and all
        slots are free."""
        self.kernel.publish_all_writes(self.schedule.tasks)
        self.kernel.clock += LONG  # all that is delayed is due
        self.run_alone(self.auditor.recover())
        if self.kernel.lock_owner is None:  # else one is stopped between having a row's lock and having the row
            self.check_dead()
        for task in self.unfinished_tasks():
            self.kernel.kill(task)
        self.kernel.publish_all_writes(self.schedule.tasks)
        self.run_alone(self.clear())
        for slot in self.shared.slots:
            if (current := self.kernel.newest(word(slot))) != FREE:
                raise Violation("leak", f"slot {slot} is {current} for ever")
        for message in self.shared.messages:
            if message.state != "gone":
                raise Violation("once", f"{message} is {message.state} for ever")
        for bits in BITS:
            for row in self.kernel.newest(bits):
                if row >= 0 and self.shared.rows[row].vacant:
                    raise Violation("leak", f"the bit of row {row} stays in {bits}, and its owner is gone")

    def check_dead(self) -> None:
        """One that is left has looked at all words."""
        for slot in self.shared.slots:
            current = self.kernel.newest(word(slot))
            if current[0] in ("filling", "taken") and (owner := self.shared.owners[slot]).dead:
                raise Violation("leak", f"slot {slot} is {current}, and {owner.name} is dead")

    def clear(self) -> Steps[None]:
        """Take all that is there, by one that remembers blocks from before."""
        yield from self.auditor.recover()
        while (job := (yield from self.auditor.take())) is not None:
            yield from self.auditor.acknowledge(job)

    def run_alone(self, steps: Steps[Any]) -> None:
        """Nobody else takes a step meanwhile."""
        task, result = self.auditor.task, None
        for _ in range(2000):
            try:
                op = steps.send(result)
            except StopIteration:
                return
            result = getattr(self.kernel, op[0])(task, *op[1:])
        raise Violation("stuck", "no end, and nobody else is there")


class Cue(NamedTuple):
    """Where a participant waits, and until when; that it got there is known to the others by its name."""

    name: str
    at: Callable[[Op], bool]
    until: Callable[[], bool]


def wait_at_cues(steps: Steps[None], cues: list[Cue], seen: set[str]) -> Steps[None]:
    """A participant that waits at its cues, which come one after the other."""
    waiting = iter(cues)
    cue = next(waiting, None)
    op = next(steps)
    while True:
        while cue and cue.at(op):
            seen.add(cue.name)
            yield until(cue.until)
            cue = next(waiting, None)
        try:
            op = steps.send((yield op))
        except StopIteration:
            return

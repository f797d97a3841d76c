"""The cast of one schedule on a vector or a board, and what must hold when all is quiet."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from .cell_reader import Reader
from .cell_shared import OWNER, Name, Rules, SharedRecords, generation, key_owner, uid, version
from .cell_writer import Writer
from .ops import pause, until
from .oracle import Violation
from .protocol import Model
from .task import Op, Steps, Task


class Cue(NamedTuple):
    """Where a participant waits, and until when."""

    at: Callable[[Op], bool]
    until: Callable[[], bool]


class RecordModel(Model):
    """One schedule of one scenario, ready to run. The last row is the auditor's, of a shared vector or a board."""

    def __init__(
        self, rng: Random, rules: Rules, traced: bool, *, length: int, rows: int, kind: str = "shared", **options: Any
    ) -> None:
        copies = options.pop("copies", 0) or (2, 2, 4)[int(rng.random() * 3)]
        self.shared = SharedRecords(rng, rules, length=length, copies=copies, rows=rows + 1, kind=kind, **options)
        self.kernel = self.shared.kernel
        super().__init__(rng, self.kernel, traced)
        self.members: list[Writer] = []  # writers that are there from the beginning
        self.ends = 0  # writers may be killed or stopped within so many steps; 0: they are not
        self.stops = True  # else: they are only killed
        self.idle: list[Task] = []  # writers that stayed
        self.readers: list[Reader] = []  # readers that end with the newest count of all
        self.sleepers: list[Reader] = []
        self.auditor = Writer(self.shared, "auditor")
        self._assign_row(self.auditor, rows, self.schedule.spawn("auditor", idle()))

    def some(self) -> list[int]:
        """Elements in any order, some perhaps twice."""
        return [self.below(len(self.shared.elements)) for _ in range(1 + self.below(len(self.shared.elements) + 1))]

    # ---- writers ----

    def _assign_row(self, writer: Writer, row: int, task: Task) -> None:
        writer.identity, writer.task = Name(row, 1), task
        self.shared.rows[row].holder = task
        self.kernel.create({generation(row): 1, uid(row): self.shared.new_uid(task)})

    def writer(self, name: str, calls: int, *, late: bool = False, **options: Any) -> None:
        """One that is there from the beginning, or comes when a row can be had. It may end before its time."""
        writer = Writer(self.shared, name)
        how = self.rng.random() if self.ends else 1.0
        lifetime = self.ends + 30 * late
        run = self._run_writer(writer, calls, late, options)
        if cue := options.get("cue"):
            run = wait_at(run, cue)
        stops = how < 0.2 and self.stops and not late
        if stops:
            run = stop_after(run, 1 + self.below(lifetime))
        task = self.schedule.spawn(name, run, lifetime if how < 0.6 and not stops else 0)
        task.is_writer = True
        if options.get("dies_writing"):
            task.kill_at, task.kill_op = 0, ("store",)
        if late:
            writer.task = task
        else:
            self._assign_row(writer, len(self.members), task)
            self.members.append(writer)
            if self.shared.kind == "exclusive":
                self.kernel.create({OWNER: writer.word_identity})
                self.shared.owners[OWNER] = task

    def thread(self, name: str, row: int, calls: int) -> None:
        """Another thread of the handle in that row; they die together."""
        first = self.members[row]
        writer = Writer(self.shared, name, first.handle)
        writer.identity = Name(row, 1)
        writer.task = self.schedule.spawn(name, self._calls(writer, calls, {}))
        writer.task.is_writer = True
        first.task.process.append(writer.task)
        writer.task.process = first.task.process

    def _run_writer(self, writer: Writer, calls: int, late: bool, options: dict[str, Any]) -> Steps[None]:
        yield pause()
        if late and not (yield from self._join_late(writer)):
            writer.task.closed = True
            return
        if self.shared.kind == "board":
            yield from self._write_keys(writer, calls)
        else:
            yield from self._calls(writer, calls, options)
        if self.chance(0.7) and len(writer.task.process) == 1:
            yield from writer.leave()
        else:
            self.idle.append(writer.task)

    def _join_late(self, writer: Writer) -> Steps[bool]:
        for _ in range(15):
            yield pause()
            if any(row.vacant for row in self.shared.rows) and (yield from writer.join()):
                return True
        return False

    def _calls(self, writer: Writer, calls: int, options: dict[str, Any]) -> Steps[None]:
        for _ in range(calls):
            yield pause()
            elements = list(self.shared.elements) if options.get("all") else self.some()
            yield from writer.write(elements, self.below(4))
            if options.get("reads") and self.chance(0.3):
                yield from writer.read(elements[0])

    def _write_keys(self, writer: Writer, calls: int) -> Steps[None]:
        """A key, now and then another one; it writes its value."""
        for _ in range(calls):
            key = yield from writer.declare(self.below(self.shared.names))
            if key is None:
                yield pause()
                continue
            for _ in range(1 + self.below(2)):
                yield from writer.write([key] * (1 + self.below(2)))
            if self.chance(0.7):
                yield from writer.release_key(key)

    # ---- readers ----

    def reader(self, name: str, *, snapshots: bool = False) -> None:
        """Reads what has changed, or all."""
        reader = Reader(self.shared, name)
        reader.task = self.schedule.spawn(name, self._follow(reader, snapshots))
        self.readers.append(reader)

    def _follow(self, reader: Reader, snapshots: bool) -> Steps[None]:
        while True:
            over = self.schedule.writers_finished()
            if snapshots:
                yield from reader.snapshot()
            elif self.chance(0.3):
                yield from reader.read_step()
            if self.shared.kind == "board":
                yield from reader.read_key_names()
            if not (yield from reader.changes()) and over:
                return
            yield pause()

    def sleeper(self, name: str) -> None:
        """Reads what has changed, and sleeps."""
        reader = Reader(self.shared, name)
        reader.task = self.schedule.spawn(name, self._follow_asleep(reader))
        self.sleepers.append(reader)

    def _follow_asleep(self, reader: Reader) -> Steps[None]:
        while True:
            while (yield from reader.changes()):
                pass
            yield from reader.sleep()

    # ---- the run ----

    def run(self) -> None:
        """As of the other models, with checks."""
        self.schedule.run()
        for sleeper in self.sleepers:
            self.check_seen(sleeper, self.shared.notified, "lost-wake" if self.unfinished_tasks() else "wake")
        self.kernel.publish_all_writes(self.schedule.tasks)
        for sleeper in self.sleepers:
            sleeper.task.asleep = False  # its own look
        self.schedule.run()
        counts = dict(enumerate(self.shared.counts()))
        for reader in [*self.readers, *self.sleepers]:
            self.check_seen(reader, counts, "account")
        self.audit()

    def check_seen(self, reader: Reader, counts: dict[int, int], broken: str) -> None:
        """Has it got all this?"""
        for element, count in counts.items():
            if reader.newest[element] < count:
                text = f"{reader.name} has count {reader.newest[element]} of element {element}, and not {count}"
                raise Violation(broken, text)

    def unfinished_tasks(self) -> list[Task]:
        """Writers that did not come to their end."""
        done = self.idle + [task for task in self.schedule.tasks if task.closed]
        return [task for task in self.schedule.tasks[1:] if task.is_writer and task.finished and task not in done]

    def audit(self) -> None:
        """Whatever the dead had can be had, then whatever those had that were stopped."""
        for kill in (False, True):
            for task in self.unfinished_tasks():
                if kill and not task.dead:
                    self.kernel.kill(task)
            self.kernel.publish_all_writes(self.schedule.tasks)
            self.run_alone(self.inspect())
        for element in self.shared.elements:
            current = self.kernel.newest(version(element))
            if current != (self.shared.count(element), None):
                raise Violation("counted", f"element {element} is {current} after {self.shared.count(element)} writes")

    def inspect(self) -> Steps[None]:
        """Read and write all that no living one has."""
        auditor, living = self.auditor, [task for task in self.unfinished_tasks() if not task.dead]
        for element in self.shared.elements:
            yield from auditor.read(element)
            if auditor.newest[element] != self.shared.count(element):
                raise Violation("monotonic", f"element {element} is read as of {auditor.newest[element]}, in the end")
        if self.kernel.lock_owner is not None:
            return  # one is stopped that had the file's lock
        if self.shared.kind == "shared":
            for element in self.shared.elements:
                if self.shared.holders.get(element) not in living and not (yield from auditor.write([element])):
                    raise Violation("inherited", f"element {element} cannot be written, and nobody has it")
        elif self.shared.kind == "exclusive":
            yield from self.inspect_owner()
        else:
            yield from self.inspect_keys()

    def inspect_owner(self) -> Steps[None]:
        """Of an exclusive vector."""
        owner = self.shared.owners.get(OWNER)
        if owner is None or owner.dead:
            if not (yield from self.auditor.may_own(OWNER)):
                raise Violation("inherited", "the vector cannot be had, and nobody has it")
            yield from self.auditor.own(OWNER)
        if self.shared.owners[OWNER] is self.auditor.task:
            yield from self.auditor.write(list(self.shared.elements))

    def inspect_keys(self) -> Steps[None]:
        """Of a board."""
        auditor = self.auditor
        for name in range(self.shared.names):
            key = yield from auditor.declare(name)
            if key is not None:
                yield from auditor.write([key])
                yield from auditor.release_key(key)
                continue
            owner = self.shared.owners.get(key_owner(self.shared.key_of(name)))
            if owner is None or owner.dead:
                raise Violation("inherited", f"the key of name {name} cannot be had, and nobody has it")

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


def idle() -> Steps[None]:
    """One that acts at the end."""
    yield pause()


def stop_after(steps: Steps[None], count: int) -> Steps[None]:
    """The first so many of them: to the others it looks alive for ever."""
    op = next(steps)
    for _ in range(count):
        try:
            op = steps.send((yield op))
        except StopIteration:
            return


def wait_at(steps: Steps[None], cue: Cue) -> Steps[None]:
    """A participant that waits once, at its cue."""
    waited, op = False, next(steps)
    while True:
        if not waited and cue.at(op):
            waited = True
            yield until(cue.until)
        try:
            op = steps.send((yield op))
        except StopIteration:
            return

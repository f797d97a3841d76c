"""Setting the stage: a topic, a machine, a schedule, and the participants of a scenario."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from .machine import Machine
from .ops import pause, until
from .protocol import Model
from .publisher import Publisher, notify_sleepers
from .rules import Rules
from .stock import StockPublisher, StockSubscriber
from .subscriber import Subscriber
from .takeover import Starter
from .task import Steps, Task
from .topic import Geometry, Topic


class TopicModel(Model):
    """A topic with its publishers and subscribers."""

    def __init__(
        self,
        rng: Random,
        rules: Rules,
        traced: bool,
        geometry: Geometry,
        *,
        own_uids: Sequence[str] = ("A",),
        slots: Sequence[str] = (),
        publisher: object = "A",
    ) -> None:
        self.topic = Topic(rules, geometry, tuple(own_uids), tuple(slots), publisher)
        super().__init__(rng, Machine(self.topic.initial(), rng), traced)
        self.palette = self._palette(geometry.need_max)
        self.publishers: dict[str, Task] = {}
        self.sleepers: list[tuple[Task, Subscriber]] = []

    def _palette(self, need_max: int) -> list[int]:
        """The sizes that messages have. With few of them, laps end where earlier laps ended."""
        if self.chance(0.3):
            return [need_max - 1]
        return [self.below(need_max) for _ in range(1 + self.below(3))]

    def sizes(self, most: int = 1) -> list[int]:
        """Of the messages of one send."""
        return [self.palette[self.below(len(self.palette))] for _ in range(1 + self.below(most))]

    # ---- publishers ----

    def new_publisher(self, uid: str, patience: int = 1000) -> Starter:
        """Return a msgq publisher that is not started."""
        return Starter(Publisher(self.topic, uid, self.rng), self.machine, self.publishers, patience)

    def publish(self, uid: str, steps: Steps[Any], killed_within: int = 0) -> Task:
        """A publisher's thread."""
        task = self.schedule.spawn(uid, steps, killed_within)
        task.is_writer = True
        self.publishers[uid] = task
        return task

    def first(
        self, starter: Starter, count: int, *, most: int = 1, abandons: float = 0, close: bool = True
    ) -> Steps[None]:
        """The life of the publisher that is in office at the beginning: `count` sends of up to `most` messages.

        `abandons`: how often it reserves room before one, and gives it up.
        """
        self.topic.publisher_rows.add(starter.publisher.uid)
        for _ in range(count):
            if abandons and self.chance(abandons):
                yield from starter.publisher.abandon(self.below(self.topic.geometry.need_max))
            if not (yield from starter.publisher.send(self.sizes(most))):
                break
        if close:
            yield from starter.close()

    def next(self, starter: Starter, count: int, *, most: int = 1, close: bool = True) -> Steps[None]:
        """The life of one that takes over."""
        if (yield from starter.start()):
            yield from self.first(starter, count, most=most, close=close)

    def stock_sends(self, stock: StockPublisher, count: int) -> Steps[None]:
        """The life of a stock publisher after its start."""
        for _ in range(count):
            if not (yield from stock.send(self.sizes()[0])):
                return

    def stock_takes_over(self, stock: StockPublisher, count: int) -> Steps[None]:
        """The life of a stock publisher, whole."""
        yield from stock.start()
        yield from self.stock_sends(stock, count)

    def after(self, uids: Sequence[str], steps: Steps[None]) -> Steps[None]:
        """Begin when those publishers are gone."""
        yield from when(lambda: all(self.publishers[uid].finished for uid in uids), steps)

    # ---- subscribers ----

    def subscribe(self, reader: Subscriber | StockSubscriber) -> Task:
        """A subscriber that polls."""
        return self.schedule.spawn(reader.name, self.follow(reader))

    def follow(self, reader: Subscriber | StockSubscriber) -> Steps[None]:
        """Read until all publishers have finished and no message is left."""
        while True:
            over = self.schedule.writers_finished()
            if (yield from reader.receive()) is not None:
                continue
            if over:
                if isinstance(reader, Subscriber):
                    self.topic.oracle.check_end(reader)
                return
            yield pause()

    def join_late(self, reader: Subscriber, pauses: int) -> Task:
        """A subscriber that comes when much or little was published."""
        return self.schedule.spawn(reader.name, self._follow_late(reader, self.below(pauses)))

    def _follow_late(self, reader: Subscriber, pauses: int) -> Steps[None]:
        for _ in range(1 + pauses):
            yield pause()
        yield from reader.attach()
        yield from self.follow(reader)

    def sleeper(self, reader: Subscriber, killed_within: int = 0) -> None:
        """A subscriber that sleeps when there is nothing to read."""
        task = self.schedule.spawn(reader.name, self._follow_asleep(reader), killed_within)
        self.sleepers.append((task, reader))

    def _follow_asleep(self, reader: Subscriber) -> Steps[None]:
        while True:
            while (yield from reader.receive()) is not None:
                pass
            yield from reader.sleep()

    def run_signal_thread(self) -> Steps[None]:
        """The helper thread: takes signals, one for any number of them, and wakes this process's sleepers."""
        machine = self.machine
        while True:
            yield until(lambda: machine.signalled)
            machine.signalled = False
            yield from notify_sleepers(self.topic, counted=self.topic.rules.signal_thread_counts)

    # ---- the run ----

    def run(self) -> None:
        """As of the other models, with checks."""
        super().run()
        for task, reader in self.sleepers:
            if not task.dead:
                self.topic.oracle.check_asleep(reader)


def when(condition: Callable[[], bool], steps: Steps[None]) -> Steps[None]:
    """Begin when that is true."""
    yield until(condition)
    yield from steps

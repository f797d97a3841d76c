"""A weak memory: C11 relaxed, acquire, release, read-modify-write and fences, as an operational model with views.

Each location keeps every write, in modification order. The view of a thread names, for each location, the oldest
write that the thread may still read. A release attaches the view to its write, and an acquire joins it. With a missing
edge, a thread may therefore read a new value of one location, and an old value of another.

Not in the model: loads that take effect after later stores of the same thread, and torn words (all shared words are
atomic).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Literal

Order = Literal["relaxed", "acquire", "release", "seq_cst"]
RELAXED: Order = "relaxed"
ACQUIRE: Order = "acquire"
RELEASE: Order = "release"
SEQ_CST: Order = "seq_cst"

View = dict[str, float]  # location -> stamp of the oldest write that may still be read


class Write:
    """One entry of a location's modification order."""

    __slots__ = ("attached", "stamp", "value", "view")

    def __init__(self, stamp: float, value: Any, view: View | None = None, attached: bool = False) -> None:
        self.stamp = stamp
        self.value = value
        self.view = view  # the view that a thread joins when it acquires this write
        self.attached = attached  # a read-modify-write: nothing fits between it and the write before


class Observer:
    """What one thread knows of the memory."""

    def __init__(self) -> None:
        self.view: View = {}
        self.released: View | None = None  # the view at the last release fence; relaxed stores carry it
        self.pending: list[View] = []  # views met by relaxed loads; an acquire fence joins them
        self.joined: set[int] = set()  # ids of views that are part of `view` already (their writes keep them alive)

    def acquire(self, carried: View) -> None:
        """Know everything that `carried` knows."""
        if id(carried) not in self.joined:
            self.joined.add(id(carried))
            join(self.view, carried)


def join(view: View, other: View) -> None:
    """Let `view` know everything that `other` knows."""
    read_stamp = view.get
    for location, stamp in other.items():
        if stamp > read_stamp(location, 0.0):
            view[location] = stamp


class Memory:
    """Locations with histories. `staleness` is the chance that a load takes less than the newest that it could; None:
    it is drawn."""

    def __init__(self, initial: dict[str, Any], rng: Random, staleness: float | None = None) -> None:
        self.histories = {location: [Write(0.0, value)] for location, value in initial.items()}
        self.flushed: View = {}  # writes that fences made visible to every later fence
        self.rng = rng
        self.staleness = (0.0, 0.3, 0.6)[int(rng.random() * 3)] if staleness is None else staleness

    def newest(self, location: str) -> Any:
        """The value at the end of the modification order: for checks, not for threads."""
        return self.histories[location][-1].value

    def load(self, actor: Observer, location: str, order: Order) -> Any:
        """Read any write that is not older than the view."""
        history = self.histories[location]
        write = history[-1]
        floor = actor.view.get(location, 0.0)
        if write.stamp > floor:
            if self.staleness and self.rng.random() < self.staleness:
                write = self._older(history, floor)
            actor.view[location] = write.stamp
        carried = write.view
        if carried is not None:
            if order is not RELAXED:
                actor.acquire(carried)
            elif not actor.pending or actor.pending[-1] is not carried:
                actor.pending.append(carried)
        return write.value

    def store(self, actor: Observer, location: str, value: Any, order: Order) -> None:
        """Write at the end of the modification order, or before writes of others that are still on their way."""
        history = self.histories[location]
        last = history[-1].stamp
        at, stamp = len(history), last + 1.0
        if self.staleness and last > actor.view.get(location, 0.0) and self.rng.random() < self.staleness:
            floor = max(actor.view.get(location, 0.0), self.flushed.get(location, 0.0))
            at, stamp = self._place(history, floor)
        actor.view[location] = stamp
        history.insert(at, Write(stamp, value, dict(actor.view) if order is not RELAXED else actor.released))

    def rmw(self, actor: Observer, location: str, change: Callable[[Any], Any]) -> Any:
        """Acquire and release; reads the newest and returns it."""
        history = self.histories[location]
        write = history[-1]
        actor.view[location] = write.stamp + 1.0
        if write.view is not None:
            actor.acquire(write.view)
        history.append(Write(write.stamp + 1.0, change(write.value), dict(actor.view), attached=True))
        return write.value

    def cas(self, actor: Observer, location: str, expected: Any, desired: Any) -> Any:
        """Compare and exchange. Return the found value."""
        write = self.histories[location][-1]
        if write.value == expected:
            return self.rmw(actor, location, lambda _: desired)
        actor.view[location] = write.stamp
        if write.view is not None:
            actor.acquire(write.view)
        return write.value

    def fence(self, actor: Observer, order: Order) -> None:
        """A fence; a relaxed one (a mutation) does nothing."""
        if order is ACQUIRE or order is SEQ_CST:
            for carried in actor.pending:
                actor.acquire(carried)
            actor.pending.clear()
        if order is SEQ_CST:
            join(self.flushed, actor.view)
            actor.view.update(self.flushed)
        if order is RELEASE or order is SEQ_CST:
            actor.released = dict(actor.view)

    def publish_all_writes(self, tasks: list[Any]) -> None:
        """Time passes: all that was written is visible to all."""
        self.flushed = {location: history[-1].stamp for location, history in self.histories.items()}
        for actor in tasks:
            self.fence(actor, SEQ_CST)

    def _older(self, history: list[Write], floor: float) -> Write:
        """One of the writes from `floor` on, except the newest."""
        first = len(history) - 1
        while first > 0 and history[first - 1].stamp >= floor:
            first -= 1
        return history[first + int(self.rng.random() * (len(history) - 1 - first))]

    def _place(self, history: list[Write], floor: float) -> tuple[int, float]:
        """Somewhere behind `floor`: writes that no fence flushed may be overtaken by a later store."""
        places = [i for i in range(1, len(history)) if history[i].stamp > floor and not history[i].attached]
        at = places[int(self.rng.random() * len(places))] if places else len(history)
        if at == len(history):
            return at, history[-1].stamp + 1.0
        return at, (history[at - 1].stamp + history[at].stamp) / 2

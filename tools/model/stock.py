"""Stock participants, after the protocol of the stock library: they trust a flag, and announce nothing.

The publisher is the one of AArch64, where a sequentially consistent store does not keep back later plain stores. The
subscriber is the one of x86, where it is an exchange and loads keep their order.
"""

from random import Random

from . import addresses as at
from .machine import Machine
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, load, load_strong, load_x86, rmw, store, tkill, until
from .oracle import Position, Violation, Word
from .publisher import any_size
from .task import Steps
from .topic import WRAP_MARK, Topic


class StockPublisher:
    """A publisher of stock. `signals`: a thread handles its SIGUSR2."""

    def __init__(self, topic: Topic, uid: str, rng: Random, signals: bool = False) -> None:
        self.topic = topic
        self.uid = uid
        self.rng = rng
        self.signals = signals
        self.num_readers = len(topic.slots)
        self.strong_load = load_strong if topic.rules.stock_loads_strong else load_x86

    def start(self) -> Steps[None]:
        """Wipe all slots; subscribers come back by themselves."""
        yield store(at.WRITE_UID, self.uid, RELEASE)
        for slot in range(len(self.topic.slots) + 1):
            yield store(at.read_valid(slot), 0, RELEASE)
            yield store(at.read_uid(slot), 0, RELEASE)
        self.num_readers = 0

    def send(self, size: int) -> Steps[bool]:
        """Send a message. Return False if another publisher took over. Only this first step checks for a takeover."""
        topic = self.topic
        if (yield self.strong_load(at.WRITE_UID)) != self.uid:
            return False
        position: Position = yield self.strong_load(at.WRITE_POINTER)
        cycle, offset = position
        if topic.geometry.wraps(position, 1 + size):
            yield store(topic.data[offset], WRAP_MARK)
            yield from self.clear_flags(cycle, offset + 1, topic.geometry.size)
            yield from self.publish(position, (cycle + 1, 0), [])
            position = cycle, offset = cycle + 1, 0
        end = (cycle, offset + 1 + size)
        yield from self.clear_flags(cycle, offset, end[1])
        message = topic.oracle.new_message(size)
        yield store(topic.data[offset], Word(message, 0, size))
        for part in range(1, size + 1):
            yield store(topic.data[offset + part], Word(message, part, any_size(topic, self.rng)))
        yield from self.publish(position, end, [message])
        if self.signals:
            yield tkill()
        return True

    def publish(self, begin: Position, end: Position, messages: list[int]) -> Steps[None]:
        """Move write_pointer."""
        yield store(at.WRITE_POINTER, end, RELEASE)
        self.topic.oracle.publish(self.uid, begin, end, messages)

    def clear_flags(self, cycle: int, begin: int, end: int) -> Steps[None]:
        """Of the subscribers in that range of the last lap, as far as it knows."""
        for slot in range(self.num_readers):
            reader_cycle, offset = yield self.strong_load(at.read_pointer(slot))
            if begin <= offset < end and reader_cycle != cycle:
                yield store(at.read_valid(slot), 0, RELEASE)


class StockSubscriber:
    """Holds its slot from the beginning."""

    def __init__(self, topic: Topic, name: str, slot: int) -> None:
        self.topic = topic
        self.name = name
        self.pointer = at.read_pointer(slot)
        self.valid = at.read_valid(slot)
        self.cursor: Position = (0, 0)
        self.era = 0
        self.sequence = None  # it does not count
        self.last_index = -1
        self.is_sleeping = False  # it has found nothing, and sleeps or is about to

    def follow_asleep(self, machine: Machine) -> Steps[None]:
        """Read, and sleep when there is nothing. A signal that comes before the sleep is lost."""
        while True:
            self.is_sleeping = False
            while (yield from self.receive()) is not None:
                pass
            yield load(self.pointer)  # some step that lasts until it sleeps
            machine.signalled = False
            yield until(lambda: machine.signalled)

    def receive(self) -> Steps[list[Word] | None]:
        """Take the next message; None when there is none, or a whole lap of them."""
        while True:
            if not (yield load(self.valid, ACQUIRE)):
                yield from self.reset()
            write_pointer = yield load(at.WRITE_POINTER, ACQUIRE)
            if write_pointer[1] == self.cursor[1]:
                self.is_sleeping = write_pointer == self.cursor  # a whole lap is lost in any case
                return None
            words = yield from self.copy()
            if words and (yield load(self.valid, ACQUIRE)):
                self.topic.oracle.deliver(self, words)
                return words

    def reset(self) -> Steps[None]:
        """Go to the present."""
        yield rmw(self.valid, lambda _: 1)
        self.cursor = yield load(at.WRITE_POINTER, ACQUIRE)
        yield from self.show()

    def copy(self) -> Steps[list[Word]]:
        """The message at the cursor, which moves on. Empty: a wrap mark, or the flag is gone."""
        cursor, data = self.cursor, self.topic.data
        header: Word = yield load(data[cursor[1]])
        yield fence(ACQUIRE)
        if not (yield load(self.valid, ACQUIRE)):
            return []
        behind = self.topic.geometry.after(cursor, header.size)
        if behind is None:
            raise Violation("torn", f"{self.name} reads the size {header} at {cursor}, and aborts")
        words = [header]
        for part in range(1, header.size + 1):
            words.append((yield load(data[cursor[1] + part])))
        yield fence(ACQUIRE)
        self.cursor = behind
        yield from self.show()
        return words if header.size >= 0 else []

    def show(self) -> Steps[None]:
        """Store the cursor for publishers."""
        cursor = self.cursor
        yield rmw(self.pointer, lambda _: cursor)
        yield fence(SEQ_CST)  # order of the exchange: its store and the next load of write_pointer stay in order

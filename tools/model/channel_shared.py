"""What the participants of a channel share: the words of its hub and pools, the kernel's locks and names; and what
really happened."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple, Protocol

from .addresses import EVENTCOUNT
from .eventcount import notify
from .machine import Machine
from .memory import ACQUIRE, RELEASE, SEQ_CST, Observer, Order, Write
from .ops import fence, until
from .oracle import Violation
from .task import Op, Steps, Task

TAIL = "tail"
EVICTED = -1  # in the place of a row


@dataclass(frozen=True, slots=True)
class Rules:
    """The decisions of the protocol."""

    # A publisher takes a slot, and publishes.
    slot_fence: Order = RELEASE  # EDGE slot: the entry is seen gone, then bytes are stored
    limbo_first: bool = True  # before a message is withdrawn
    pins_checked: bool = True
    pins_load_seq_cst: bool = True  # EDGE pin, the owner's side; else: acquire
    answers_end: bool = True  # else: a row that was once found dead is believed to be so for ever
    asks_after_pins: bool = True  # else: who is dead is asked before a slot is taken out of the ring
    dead_bits_cleared: bool = True
    helps: bool = True
    tail_by_exchange: bool = True
    # A subscriber reads.
    entry_load: Order = ACQUIRE  # EDGE order
    copy_fence: Order = ACQUIRE  # EDGE slot: bytes are copied, then the entry is loaded again
    checks_after_copy: bool = True
    pin_seq_cst: bool = True  # EDGE pin, the subscriber's side: the bit is set, then the entry is loaded again
    checks_after_pin: bool = True
    unpin: Literal["seq_cst", "release", "relaxed"] = "seq_cst"  # EDGE unpin, EDGE room; else weaker
    failed_pin_wakes: bool = True  # else: only a view that is let go does
    uid_compared: bool = True  # else: a row that was mapped once is believed to keep its pool
    # Rows change hands.
    bit_cleaned: bool = True  # before the next subscriber uses it
    bit_cleaned_first: bool = True  # before that one holds the row; else: after
    row_kept: bool = True  # by a publisher that grew, while it may publish from its former pool
    row_unreferenced: bool = True  # before it gets another pool
    liveness_before_entries: bool = True  # else: a joiner goes through the entries, then asks who is dead
    # Sleeping.
    rechecks: bool = True


class Entry(NamedTuple):
    """A word of the order ring."""

    position: int
    row: int
    slot: int


class Message(NamedTuple):
    """As its publisher sent it."""

    publisher: str
    number: int
    length: int  # in words


class Word(NamedTuple):
    """Eight of a slot's bytes: which part of which message. Part 0 is its length."""

    message: Message
    part: int


class Pin(NamedTuple):
    """A bit of a slot's pins. The protocol knows the row, the checks know who set it."""

    row: int
    by: str


Pins = frozenset[Pin]

# How seq_cst loads, changes and exchanges behave: as machine code, and as the language says.
X86 = ("load_x86", "rmw_x86", "cas_x86")
AARCH64 = ("load_strong", "rmw", "cas")
C11 = ("load_c11", "rmw_c11", "cas_c11")
CPUS = (X86, AARCH64, C11)

LONGEST = 2  # words of payload
NOTHING = Word(Message("nobody", 0, 0), 0)


def pool_uid(row: int) -> str:
    """Of a publisher's row: the pool that its entries mean."""
    return f"pool_uid[{row}]"


def pins(uid: int, slot: int) -> str:
    """In the head of a pool: who views the slot."""
    return f"pins[{uid}][{slot}]"


def room(uid: int) -> str:
    """In the head of a pool: eventcount of its publisher, who waits for a slot."""
    return f"room[{uid}]"


def word(uid: int, slot: int, part: int) -> str:
    """A part of what is in a slot."""
    return f"word[{uid}][{slot}][{part}]"


def read_by(uid: int, slot: int, row: int) -> str:
    """The last position that was viewed there, for the check: it is stored where C loads bytes."""
    return f"read_by[{uid}][{slot}][{row}]"


def without(rows: set[int]) -> Callable[[Pins], Pins]:
    """Clear the bits of these rows."""

    def clear(pinned: Pins) -> Pins:
        return frozenset(pin for pin in pinned if pin.row not in rows)

    return clear


class Participant(Protocol):
    """A publisher or a subscriber."""

    task: Task


class Row:
    """A row and the kernel's lock of it, which its holder loses by leaving and by dying."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder: Task | None = None

    @property
    def vacant(self) -> bool:
        """Nobody living holds the lock."""
        return self.holder is None or self.holder.dead or self.holder.closed

    def __str__(self) -> str:
        return self.name


class ModelKernel(Machine):
    """The machine, and what the kernel knows of a channel: who holds which row, which pools have a name."""

    def __init__(self, initial: dict[str, Any], rng: Random, staleness: float) -> None:
        super().__init__(initial, rng, staleness)
        self.files: set[int] = set()  # uids of pools

    def create(self, words: Mapping[str, Any]) -> None:
        """Memory of a new file."""
        for location, value in words.items():
            self.histories[location] = [Write(0.0, value)]

    def cas_x86(self, actor: Task, location: str, expected: Any, desired: Any) -> Any:
        """A locked instruction: a full fence as well."""
        self.fence(actor, SEQ_CST)
        current = self.cas(actor, location, expected, desired)
        self.fence(actor, SEQ_CST)
        return current

    def load_c11(self, actor: Task, location: str) -> Any:
        """What the language promises and no more: behind all sequentially consistent writes of this one location."""
        actor.view[location] = max(actor.view.get(location, 0.0), self.flushed.get(location, 0.0))
        return self.load(actor, location, ACQUIRE)

    def rmw_c11(self, actor: Task, location: str, change: Callable[[Any], Any]) -> Any:
        """Seen by all sequentially consistent loads of this location that come later."""
        before = self.rmw(actor, location, change)
        self.flushed[location] = actor.view[location]
        return before

    def cas_c11(self, actor: Task, location: str, expected: Any, desired: Any) -> Any:
        """The same as an exchange."""
        current = self.cas(actor, location, expected, desired)
        if current == expected:
            self.flushed[location] = actor.view[location]
        return current

    def rmw_relaxed(self, actor: Observer, location: str, change: Callable[[Any], Any]) -> Any:
        """Hands on what the write before carried, and nothing of its own."""
        write = self.histories[location][-1]
        actor.view[location] = write.stamp + 1.0
        self.histories[location].append(Write(write.stamp + 1.0, change(write.value), write.view, attached=True))
        return write.value

    def is_vacant(self, actor: Task, row: Row) -> bool:
        """F_OFD_GETLK: who learns that somebody is gone sees all that it wrote."""
        if row.vacant:
            self.fence(actor, SEQ_CST)
        return row.vacant

    def open_file(self, actor: Task, uid: int) -> bool:
        """Has the pool a name?"""
        self.fence(actor, SEQ_CST)
        return uid in self.files

    def name_file(self, actor: Task, uid: int) -> None:
        """From now on it can be opened."""
        self.fence(actor, SEQ_CST)
        self.files.add(uid)

    def unlink_file(self, actor: Task, uid: int) -> None:
        """Who has mapped it goes on."""
        self.fence(actor, SEQ_CST)
        self.files.discard(uid)


class Pool:
    """A publisher's slots, and its own notes of them, which are in no shared memory."""

    def __init__(self, uid: int, row: int, slots: int) -> None:
        self.uid, self.row, self.slots = uid, row, slots
        self.free = deque(range(slots))
        self.published: deque[Entry] = deque()
        self.limbo: list[int] = []  # out of the ring, and pinned when looked at
        self.in_hand = set(self.free)  # for the checks: the publisher may write there

    def words(self, viewers: int) -> dict[str, Any]:
        """Its file, new."""
        initial: dict[str, Any] = {pins(self.uid, slot): Pins() for slot in range(self.slots)}
        initial[room(self.uid)] = (0, False, False)
        for slot in range(self.slots):
            initial |= {word(self.uid, slot, part): NOTHING for part in range(1 + LONGEST)}
            initial |= {read_by(self.uid, slot, row): 0 for row in range(viewers)}
        return initial


class SharedChannel:
    """The shared words, and what really happened to them."""

    def __init__(self, rng: Random, rules: Rules, *, capacity: int, rows: int, viewers: int, configured: bool) -> None:
        self.rng, self.rules, self.capacity = rng, rules, capacity
        self.load, self.rmw, self.cas = CPUS[int(rng.random() * len(CPUS))]
        self.rows = [Row(f"publisher's row {row}") for row in range(rows)]
        self.viewers = [Row(f"subscriber's row {row}") for row in range(viewers)]
        self.pools: dict[int, Pool] = {}
        self.subscribers: dict[str, Task] = {}  # those that may view, by name
        self.views: dict[tuple[int, int], set[Task]] = {}  # (uid, slot) -> who holds it
        self.messages: list[Message] = []  # published at position `capacity`, `capacity` + 1, ...
        self.notified = 0  # messages before this position have a publisher that returned from its call
        initial: dict[str, Any] = {TAIL: capacity if configured else 0, EVENTCOUNT: (0, False, False)}
        initial |= {self.entry(i): Entry(i, EVICTED, 0) if configured else Entry(0, 0, 0) for i in range(capacity)}
        initial |= {pool_uid(row): 0 for row in range(rows)}
        self.kernel = ModelKernel(initial, rng, (0.0, 0.3, 0.6)[int(rng.random() * 3)])

    def entry(self, position: int) -> str:
        """The word for that position."""
        return f"entry[{position % self.capacity}]"

    def new_pool(self, row: int, slots: int) -> Pool:
        """A file that has no name yet."""
        pool = Pool(len(self.pools) + 1, row, slots)
        self.pools[pool.uid] = pool
        self.kernel.create(pool.words(len(self.viewers)))
        return pool

    def assign_pool(self, row: int, slots: int) -> Pool:
        """Of a publisher that joined before everything else."""
        pool = self.new_pool(row, slots)
        self.kernel.create({pool_uid(row): pool.uid})
        self.kernel.files.add(pool.uid)
        return pool

    # ---- sequentially consistent operations ----

    def exchange(self, location: str, expected: Any, desired: Any) -> Op:
        """Compare and exchange; the value before."""
        return (self.cas, location, expected, desired)

    def change(self, location: str, change: Callable[[Any], Any]) -> Op:
        """Read, modify, write; the value before."""
        return (self.rmw, location, change)

    def load_seq_cst(self, location: str) -> Op:
        """A load."""
        return (self.load, location)

    def wake(self, location: str) -> Steps[None]:
        """Whoever sleeps on that word, after something was changed sequentially consistently."""
        if (yield self.load_seq_cst(location))[1]:
            yield from notify(location)

    # ---- the lock of those who come and go ----

    def lock(self, actor: Participant) -> Steps[None]:
        """The flock of the hub's file."""
        yield until(lambda: self.kernel.lock_owner is None)
        self.kernel.lock_owner = actor.task

    def unlock(self) -> Steps[None]:
        """Let the next one come."""
        yield fence(SEQ_CST)
        self.kernel.lock_owner = None

    # ---- what really happened ----

    @property
    def end(self) -> int:
        """The position of the next message."""
        return self.capacity + len(self.messages)

    def publish(self, entry: Entry, message: Message) -> None:
        """An entry was exchanged."""
        if entry.position != self.end:
            raise Violation("overlap", f"{message} is published at {entry.position}, but {self.end} is next")
        self.messages.append(message)

    def holders(self, uid: int, slot: int) -> list[str]:
        """The living who view that slot."""
        return [task.name for task in self.views.get((uid, slot), ()) if not task.dead]

    def take(self, pool: Pool, slot: int) -> None:
        """A publisher is about to write there."""
        if holders := self.holders(pool.uid, slot):
            raise Violation("held", f"pool {pool.uid} writes into slot {slot}, which {holders} hold")
        for i in range(self.capacity):
            entry = self.kernel.newest(self.entry(i))
            if entry[1:] == (pool.row, slot) and self.kernel.newest(pool_uid(pool.row)) == pool.uid:
                raise Violation("held", f"pool {pool.uid} writes into slot {slot}, which is in the ring as {entry}")
        pool.in_hand.add(slot)

    def view(self, task: Task, uid: int, slot: int) -> None:
        """A subscriber believes that nobody will write there."""
        if slot in self.pools[uid].in_hand:
            raise Violation("held", f"{task.name} views slot {slot} of pool {uid}, which is being written")
        self.views.setdefault((uid, slot), set()).add(task)

    def find_gone_viewers(self) -> set[str]:
        """Subscribers that died, or let go all that they held."""
        return {name for name, task in self.subscribers.items() if task.dead or task.closed}

    def idle(self, pool: Pool, owner: Participant) -> dict[int, Write]:
        """Slots in limbo whose last views were let go, as their publisher can see: it need not withdraw anything."""
        latest = {slot: self.kernel.histories[pins(pool.uid, slot)][-1] for slot in pool.limbo}
        known = owner.task.view if latest else {}
        return {
            slot: last
            for slot, last in latest.items()
            if not last.value and known.get(pins(pool.uid, slot)) == last.stamp
        }

    def withdraw(self, pool: Pool, idle: dict[int, Write]) -> None:
        """A publisher shortens the ring. `idle`: as it was when it began to look for a slot."""
        for slot in pool.limbo:
            if idle.get(slot) is self.kernel.histories[pins(pool.uid, slot)][-1]:
                raise Violation("depth", f"pool {pool.uid} withdraws a message and has slot {slot}, which nobody views")

    def refuse(self, pool: Pool, gone_viewers: set[str]) -> None:
        """A publisher lacks a slot. `gone`: who was gone when it began to look for one."""
        used = [*pool.limbo, *(sent.slot for sent in pool.published)]
        if len(used) != pool.slots:
            raise Violation("refused", f"pool {pool.uid} has {pool.slots} slots, and {used} are in use")
        for slot in used:
            pinned = {pin.by for pin in self.kernel.newest(pins(pool.uid, slot))}
            if pinned and pinned <= gone_viewers:
                raise Violation("refused", f"slot {slot} of pool {pool.uid} waits for {sorted(pinned)}, who are gone")

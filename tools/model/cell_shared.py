"""What the participants of a vector or a board share: the words of its file, and what really happened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from .addresses import EVENTCOUNT
from .machine import Machine
from .memory import ACQUIRE, RELAXED, RELEASE, SEQ_CST, Order, View, Write
from .ops import CPUS
from .oracle import Violation
from .task import Op, Task

OWNER = "owner"  # location of an exclusive vector's owner
PARTS = range(2)  # parts of a copy: its time and its item; or parts of a key's name


class Name(NamedTuple):
    """Of a handle that writes."""

    row: int
    generation: int


class Version(NamedTuple):
    """The word of an element: how often it was written, and who writes it."""

    writes: int
    owner: Name | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The decisions of the protocol; `cpu`: one of CPUS, or any of them; `copies`: or those of the scenario."""

    cpu: tuple[str, str, str] | None = None
    copies: int | None = None
    # Writing.
    lock_load: Order = ACQUIRE  # load of a version, before the row's process is checked
    loads_again: bool = True  # else: only the exchange is tried again
    holder_checked: bool = True  # whether the holder lives
    steals: bool = True
    generation_named: bool = True  # generation in versions, and in the owner of a vector or a key
    locks_by_exchange: bool = True  # and joiners give back so; else: by a store
    threads_locked: bool = True  # threads of one handle exclude each other, if only it has elements
    write_fence: Order = RELEASE  # EDGE cell: the lock, or the last version, then bytes
    times_kept: bool = True  # the time of a write is not before that of the last one
    publish: Literal["seq_cst", "release", "relaxed"] = "seq_cst"  # EDGE value, EDGE sleep: of a shared element
    publish_fence: Order = RELAXED  # fence behind the versions of a call, if `publish` is no edge by itself
    exclusive_publish: Order = RELEASE  # EDGE value
    exclusive_fence: Order = SEQ_CST  # EDGE sleep
    # Reading.
    version_load: Order = ACQUIRE  # EDGE value
    read_fence: Order = ACQUIRE  # EDGE cell: bytes, then the version
    further: int = 0  # versions that a reader accepts beyond those that spare its copy
    waits_for_writer: bool = False  # True: readers of one copy wait for the writer
    seen_by_second_look: bool = False  # a reader remembers the version behind its copy, not the one before
    snapshot_looks: int = 1000  # looks at versions, while they change
    snapshot_compares_all: bool = True  # compares all each time; else: only those read again
    # Rows, vectors and keys change hands.
    references_cleared: bool = True  # the next owner of a dead row clears its references before it has the row
    liveness_checked: bool = True  # checks whether the owner of an exclusive vector or of a key lives
    owner_first: bool = True  # cleared before the row; after it an exchange would do as well
    owner_by_exchange: bool = True
    count_forgotten: bool = True  # the claim of a vector or a key forgets the old count
    key_store: Order = RELEASE  # EDGE key: its state, behind its name
    key_load: Order = ACQUIRE  # EDGE key
    name_first: bool = True
    # Sleeping.
    sleeper_fence: Order = SEQ_CST  # EDGE sleep: the announcement, then versions are loaded
    rechecks: bool = True
    eventcount_last: bool = True  # load of the eventcount behind the version; else: before
    flag_stands: bool = True  # the flag stays until a process has woken
    notifies_when_late: bool = True  # a call that gives up tells of what it wrote
    notifies_before_wait: bool = True  # tells waiting processes before it waits for an element that another one holds


def version(element: int) -> str:
    """Its count, and who writes it."""
    return f"version[{element}]"


def part(element: int, copy: int, i: int) -> str:
    """The write that stored this part of a copy, the first of which is its time; 0: none."""
    return f"part[{element}][{copy}][{i}]"


def generation(row: int) -> str:
    """Owners that a row has had."""
    return f"generation[{row}]"


def uid(row: int) -> str:
    """Of its owner; 0: none."""
    return f"uid[{row}]"


def key_owner(key: int) -> str:
    """Who writes its value."""
    return f"key_owner[{key}]"


def key_state(key: int) -> str:
    """1: it has a name."""
    return f"key_state[{key}]"


def key_name(key: int, i: int) -> str:
    """A part of its name."""
    return f"key_name[{key}][{i}]"


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


class RecordKernel(Machine):
    """The machine, and what the kernel knows of rows and of the file's lock."""

    def create(self, words: Mapping[str, Any]) -> None:
        """Words as they are at the beginning."""
        for location, value in words.items():
            self.histories[location] = [Write(0.0, value)]

    def try_lock(self, actor: Task) -> bool:
        """The flock of the file, LOCK_NB."""
        self.fence(actor, SEQ_CST)
        if self.lock_owner is None:
            self.lock_owner = actor
        return self.lock_owner is actor

    def unlock(self, actor: Task) -> None:
        """Let the next one have it."""
        self.fence(actor, SEQ_CST)
        self.lock_owner = None

    def is_vacant(self, actor: Task, row: Row) -> bool:
        """F_OFD_GETLK: who learns that somebody is gone sees all that it wrote."""
        if row.vacant:
            self.fence(actor, SEQ_CST)
        return row.vacant

    def is_gone(self, actor: Task, row: Row, process: Task | None) -> bool:
        """`named`: as the row says, perhaps before its lock's holder, who asks the kernel about that process, too."""
        vacant = row.vacant or (process is not None and process.dead and self.rng.random() < 0.5)
        if vacant:
            self.fence(actor, SEQ_CST)
        return vacant

    def count_known(self, view: View, location: str) -> int:
        """Of the oldest version that one with this view may load."""
        stamp = view.get(location, 0.0)
        return max(int(write.value.writes) for write in self.histories[location] if write.stamp <= stamp)


class SharedRecords:
    """The shared words, and what really happened to them."""

    def __init__(
        self, rng: Random, rules: Rules, *, length: int, copies: int, rows: int, kind: str, names: int = 0
    ) -> None:
        self.rng, self.rules, self.kind = rng, rules, kind
        self.copies = rules.copies or copies
        self.spared = max(self.copies - 2, 0) + rules.further  # versions that may follow while a copy is read
        self.elements = range(length)
        self.names = names  # possible names of keys
        drawn = CPUS[int(rng.random() * len(CPUS))]
        self.load, self.rmw, self.cas = rules.cpu or drawn
        self.rows = [Row(f"row {row}") for row in range(rows)]
        initial: dict[str, Any] = {EVENTCOUNT: (0, False, False), OWNER: None}
        for e in self.elements:
            initial |= {version(e): Version(0), key_owner(e): None, key_state(e): 0}
            initial |= {part(e, copy, i): 0 for copy in range(self.copies) for i in PARTS}
            initial |= {key_name(e, i): None for i in PARTS}
        for row in range(rows):
            initial |= {generation(row): 0, uid(row): 0}
        self.kernel = RecordKernel(initial, rng)
        self.identities: dict[int, Task] = {}  # uid -> whose it is
        self.writes = 0  # begun
        self.times = {0: 0}  # write -> what it says when it was
        self.values = {e: [0] for e in self.elements}  # the write that made each count
        self.writers = {e: list[Task]() for e in self.elements}  # writers of count 1, 2, ...
        self.known: dict[tuple[int, int], dict[int, int]] = {}  # counts that the writer of (element, count) knew
        self.instants = {tuple(0 for _ in self.elements)}  # counts of all elements, as they were together
        self.holders: dict[int, Task] = {}  # element -> who writes it
        self.owners: dict[str, Task] = {}  # owners of the vector, or of a key
        self.notified = dict.fromkeys(self.elements, 0)  # counts whose writers have told of them

    @property
    def exclusive(self) -> bool:
        """Elements are not locked."""
        return self.kind != "shared"

    def new_uid(self, task: Task) -> int:
        """For one that takes a row."""
        self.identities[len(self.identities) + 1] = task
        return len(self.identities)

    # ---- sequentially consistent operations ----

    def exchange(self, location: str, expected: Any, desired: Any) -> Op:
        """Compare and exchange; the value before."""
        return (self.cas, location, expected, desired)

    def load_seq_cst(self, location: str) -> Op:
        """A load."""
        return (self.load, location)

    # ---- real events ----

    def count(self, element: int) -> int:
        """Writes that were completed."""
        return len(self.values[element]) - 1

    def counts(self) -> tuple[int, ...]:
        """Of all elements."""
        return tuple(self.count(e) for e in self.elements)

    def begin(self, task: Task, element: int) -> int:
        """Somebody is about to store bytes there; a number for the write."""
        holder = self.holders.get(element)
        if holder and not holder.dead:
            raise Violation("stolen", f"{task.name} writes element {element}, and {holder.name} is writing it")
        self.holders[element] = task
        self.writes += 1
        return self.writes

    def complete(self, task: Task, element: int, number: int, count: int) -> None:
        """A version was stored."""
        if self.holders.pop(element, None) is not task:
            raise Violation("stolen", f"{task.name} completes a write of element {element}, which it no longer has")
        if count != self.count(element) + 1:
            raise Violation("counted", f"{task.name} makes element {element} {count}; it was {self.count(element)}")
        if self.times[number] < self.times[self.values[element][-1]]:
            raise Violation("monotonic", f"{task.name} writes element {element} at a time before it was written last")
        self.values[element].append(number)
        self.writers[element].append(task)
        self.instants.add(self.counts())
        view = task.view
        self.known[element, count] = {e: self.kernel.count_known(view, version(e)) for e in self.elements}

    def own(self, task: Task, location: str) -> None:
        """Somebody has the vector, or a key."""
        owner = self.owners.get(location)
        if owner and not owner.dead:
            raise Violation("stolen", f"{task.name} takes {location}, and {owner.name} has it")
        self.owners[location] = task

    def disown(self, task: Task, location: str) -> None:
        """Its owner wants it no more."""
        if self.owners.get(location) is task:
            del self.owners[location]

    def key_of(self, name: int) -> int:
        """That has this name."""
        return next(e for e in self.elements if self.kernel.newest(key_name(e, 0)) == name)

    def counts_by_dead(self) -> dict[int, int]:
        """Counts by those who died: whoever writes from now on tells of them, too."""
        return {e: max((i + 1 for i, by in enumerate(self.writers[e]) if by.dead), default=0) for e in self.elements}

    def mark_notified(self, counts: Iterable[tuple[int, int]]) -> None:
        """Nobody may sleep before these."""
        for element, count in counts:
            self.notified[element] = max(self.notified[element], count)

    def check_row(self, row: int) -> None:
        """It gets a new owner, whom no word names."""
        words = [*map(version, self.elements), *map(key_owner, self.elements)]
        for location in words:
            current = self.kernel.newest(location)
            name = current.owner if isinstance(current, Version) else current
            if name and name.row == row:
                raise Violation("leak", f"row {row} is handed on, and {location} names it")

    def check_read(self, actor: str, element: int, count: int, parts: list[int]) -> None:
        """All parts are of the write that made this count."""
        if count >= len(self.values[element]) or set(parts) != {self.values[element][count]}:
            raise Violation("torn", f"{actor} takes {parts} for count {count} of element {element}")

    def check_snapshot(self, actor: str, counts: dict[int, int]) -> None:
        """Who wrote one of these knew of no later one of another; and where all see the newest, it was so."""
        for element, count in counts.items():
            for other, least in self.known.get((element, count), {}).items():
                if counts[other] < least:
                    text = f"{actor}'s snapshot is {counts}, and who made {element} {count} knew {other} to be {least}"
                    raise Violation("snapshot", text)
        if not self.kernel.staleness and tuple(counts.values()) not in self.instants:
            raise Violation("snapshot", f"{actor}'s snapshot is {counts}, which never was")

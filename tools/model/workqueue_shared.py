"""What the handles of a work queue share: the words of its file, the kernel's locks and sleepers; and what really
happened."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from . import channel_shared
from .channel_shared import CPUS, Row
from .memory import ACQUIRE, RELEASE, SEQ_CST, Observer, Order
from .oracle import Violation
from .task import Op, Task

READY = "ready"
NOTIFY_SEQ = "notify_seq"
TICKETS = "tickets"
WAITING = "receivers_waiting"
WATCHING = "receivers_watching"
SENDERS = "senders_waiting"
NOTIFY_REQUESTED = "notify_requested"
KINDS = (WAITING, WATCHING, SENDERS)  # of sleep
BITS = (*KINDS, NOTIFY_REQUESTED)

#: ("filling", row, generation), ("ready", priority, -order), ("taken" or "delayed", row, generation, take)
Word = tuple[Any, ...]
FREE: Word = ("free",)
Rows = frozenset[int]
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Rules:
    """The decisions of the protocol; `cpu`: one of CPUS, or any of them."""

    cpu: tuple[str, str, str] | None = None
    # Sending.
    fill_counted: Literal["before", "after", "never"] = "before"  # EDGE fill-count: counted before the message is READY
    fill_count_seq_cst: bool = True  # else: relaxed
    word_store: Order = RELEASE  # EDGE message
    count_last: bool = True  # behind the word
    count_seq_cst: bool = True  # EDGE sent; else: relaxed
    count_each: bool = True  # of a batch; else: once for all
    # Receiving.
    count_load: Order = ACQUIRE  # EDGE sent
    rechecks: bool = True  # at the count, after a scan
    scan_fence: Order = ACQUIRE  # EDGE sent: words, then the count
    fill_count_load: Order = ACQUIRE  # EDGE fill-count
    fill_count_first: bool = True  # before the words of its block
    caches_filling: bool = False  # a block in which a word was FILLING
    caches_taken: bool = False
    invalidates_failed: bool = True  # a block whose best was gone
    free: Literal["seq_cst", "release", "relaxed"] = "seq_cst"  # EDGE free, EDGE room; else: weaker
    # The dead, and leases.
    recovery_load: Order = ACQUIRE  # of a word, before it is asked who lives
    words_name_generation: bool = True
    liveness_checked: bool = True
    generation_compared: bool = True  # of a word, with its row's
    row_recovered: bool = True  # its bits and debts, by its next owner, before that one has it
    dead_bits_locked: bool = True  # nobody joins while they are cleared
    lease_take_compared: bool = True
    lease_last: bool = True  # stored behind the copy
    lease_store: Order = RELEASE
    delay_renews_take: bool = True  # before a consumer stores the due time
    due_time_first: bool = True  # stored before the DELAYED word
    delayed_store: Order = RELEASE
    delayed_needs_owner: bool = False  # else: a message outlives the process that delayed it
    # Sleeping.
    announces_first: bool = True  # before the look of who goes to sleep
    sleeper_fence: Order = SEQ_CST  # EDGE sleeper-bit: announcement and bit, then words are loaded
    sleep_check_loads_count: bool = True  # EDGE sleeper-bit: before the words, for a sender's word is only released
    sets_bit: bool = True
    bit_each: bool = True  # else: one flag for all
    threads_counted: bool = True  # of a row: its bit goes off with the last
    leaver_fence: Order = SEQ_CST  # the bit is cleared, then words are loaded for the last time
    bits_last: bool = True  # looked at when the message is READY
    flag_stands: bool = True  # until the row was woken
    sleepers_loaded_seq_cst: bool = True  # EDGE sleeper-bit: at bits and announcements; else: relaxed
    announcement_counts_once: bool = True  # of two that wake a row only the first counts it as its own
    watchers_extra: bool = True  # else: one that is woken is one receiver less
    leaver_passes_on: bool = True  # the wake that it may have had
    space_passes_on: bool = True  # who waits for space only looks
    # Fairness.
    wakes_longest: bool = True  # else: the first row
    ticket_first: bool = True  # EDGE ticket: stored before the announcement
    ticket_kept: bool = True  # until the call ends; else: a new one for each sleep
    turns: bool = True  # of calls that are woken without result
    turn_taken_over: bool = True  # by smaller tickets
    larger_yield: bool = True  # to the turn; else: smaller tickets, too
    turn_ends: bool = True  # with its call
    turn_end_wakes: bool = True  # those who yielded
    turn_end_notifies: bool = True  # those who are to be told
    dead_turns_end: bool = True  # when their owners leave messages there
    # Notification.
    ready_scans: Literal["both", "before", "after"] = "both"
    scan_ready_fence: Order = SEQ_CST  # the message is counted, then the words are loaded
    empty_fence: Order = SEQ_CST  # nothing was found, then the count is loaded
    notify_request_loaded_last: bool = True
    ready_scan_compares_fill_count: bool = True
    requeue_notifies: bool = True  # whatever else is there
    notifier_fence: Order = SEQ_CST  # a message is taken, or a bit cleared, then the words are loaded
    leaver_notifies: bool = True  # that it waits no more
    taker_notifies: bool = True  # one that got a message of several, while senders left them to it
    recovery_notifies: bool = True  # when it has cleared the bit of a dead receiver
    notify_debts: bool = True  # whoever must still tell says so in its row, for the case that it dies


def word(slot: int) -> str:
    """Whose message is there."""
    return f"word[{slot}]"


def key(slot: int) -> str:
    """In its head: the word that makes it READY."""
    return f"key[{slot}]"


def data(slot: int) -> str:
    """Its payload."""
    return f"data[{slot}]"


def lease(slot: int) -> str:
    """In its head: row, take and deadline."""
    return f"lease[{slot}]"


def read_by(slot: int, name: str) -> str:
    """The last message that was copied there, for the check: it is stored where C loads bytes."""
    return f"read_by[{slot}][{name}]"


def fill_count(block: int) -> str:
    """Messages whose sending began in that block."""
    return f"fill_count[{block}]"


def generation(row: int) -> str:
    """Owners that a row has had."""
    return f"generation[{row}]"


def uid(row: int) -> str:
    """Of its owner; 0: none."""
    return f"uid[{row}]"


def row_eventcount(row: int, kind: str) -> str:
    """What its sleepers of that kind sleep on."""
    return f"eventcount[{row}][{kind}]"


def since(row: int, kind: str) -> str:
    """The ticket of its longest waiter of that kind."""
    return f"since[{row}][{kind}]"


def turn(kind: str) -> str:
    """The ticket of the call that is served next; 0: any call may be."""
    return f"turn[{kind}]"


def notify_debt(row: int) -> str:
    """So often its owner has not told yet what it must tell."""
    return f"notify_debt[{row}]"


@dataclass(eq=False, slots=True)
class Message:
    """As its sender sent it, and where it is by now."""

    sender: str
    number: int
    priority: int
    key: Word = FREE
    state: Literal["new", "ready", "taken", "delayed", "gone"] = "new"
    count: float = NEVER  # `ready` when it was counted since it became READY
    incarnation: int = 0  # how often it became READY
    deadline: float = NEVER  # when the lease of its taker is over, or when it is due

    def __str__(self) -> str:
        return f"{self.sender}'s {self.number} (priority {self.priority})"


class QueueKernel(channel_shared.ModelKernel):
    """The machine, which word each sleeper waits for, and which threads are of one process."""

    def __init__(self, initial: dict[str, Any], rng: Random, staleness: float) -> None:
        super().__init__(initial, rng, staleness)
        self.processes: dict[Task, list[Task]] = {}  # those that have several threads
        self.sleepers: dict[Task, str] = {}  # also those that are awake by now
        self.timed_out: set[Task] = set()
        self.slept_at: dict[Task, int] = {}  # the step in which its last sleep began
        self.fenced_at: dict[Task, int] = {}  # its last full fence: a load of x86 may be as old as that

    def fence(self, actor: Observer, order: Order) -> None:
        """As the machine's."""
        super().fence(actor, order)
        if order == SEQ_CST and isinstance(actor, Task):
            self.fenced_at[actor] = self.clock

    def futex_wait(self, actor: Task, location: str, unchanged: Callable[[Any], bool]) -> bool:
        """As the machine's; and time may run out."""
        self.sleepers[actor] = location
        self.slept_at[actor] = self.clock
        self.timed_out.discard(actor)
        return super().futex_wait(actor, location, unchanged)

    def asleep(self) -> dict[Task, str]:
        """Who sleeps where; some of them may be stopped."""
        return {task: at for task, at in self.sleepers.items() if task.asleep and not task.dead}

    def futex_wake_at(self, actor: Task, location: str) -> None:
        """All who sleep there."""
        self.fence(actor, SEQ_CST)
        for task, at in self.sleepers.items():
            if at == location:
                task.asleep = False

    def kill(self, task: Task) -> None:
        """With all threads of its process."""
        for thread in self.processes.get(task, [task]):
            if not thread.closed:
                super().kill(thread)

    def time_out(self, actor: Task) -> None:
        """Of one sleeper."""
        if sleepers := [task for task in self.asleep() if not task.finished]:
            self.wake_late(sleepers[int(self.rng.random() * len(sleepers))])

    def wake_late(self, task: Task) -> None:
        """Its time is over."""
        self.timed_out.add(task)
        task.asleep = False

    def is_late(self, actor: Task) -> bool:
        """What ended its sleep? The time."""
        return actor in self.timed_out

    def try_lock(self, actor: Task) -> bool:
        """The flock of the queue's file, LOCK_NB."""
        self.fence(actor, SEQ_CST)
        if self.lock_owner is None:
            self.lock_owner = actor
        return self.lock_owner is actor

    def unlock(self, actor: Task) -> None:
        """Let the next one have it."""
        self.fence(actor, SEQ_CST)
        self.lock_owner = None


class SharedQueue:
    """The shared words, and what really happened to them."""

    def __init__(self, rng: Random, rules: Rules, *, blocks: int, width: int, rows: int) -> None:
        self.rng, self.rules, self.blocks, self.width = rng, rules, blocks, width
        self.slots = range(blocks * width)
        drawn = CPUS[int(rng.random() * len(CPUS))]
        self.load, self.rmw, self.cas = rules.cpu or drawn
        self.rows = [Row(f"row {row}") for row in range(rows)]
        initial: dict[str, Any] = {READY: 0, NOTIFY_SEQ: 0, TICKETS: 0} | dict.fromkeys(BITS, Rows())
        initial |= {turn(kind): 0 for kind in KINDS}
        initial |= {fill_count(block): 0 for block in range(blocks)}
        for slot in self.slots:
            initial |= {word(slot): FREE, key(slot): FREE, data(slot): None, lease(slot): (-1, 0, 0)}
        for row in range(rows):
            initial |= {generation(row): 0, uid(row): 0, notify_debt(row): 0}
            initial |= {row_eventcount(row, kind): (0, False, False) for kind in KINDS}
            initial |= {since(row, kind): 0 for kind in KINDS}
        self.kernel = QueueKernel(initial, rng, (0.0, 0.3, 0.6)[int(rng.random() * 3)])
        self.names: list[str] = []  # of all who ever read
        self.owners: dict[int, Task] = {}  # slot -> who made the word FILLING or TAKEN
        self.inside: dict[int, Message] = {}  # slot -> what is READY or TAKEN there
        self.messages: list[Message] = []  # that became READY
        self.uids = 0
        self.calls: dict[int, Task] = {}  # ticket -> whose call has it
        #: By kind: tickets that took the turn since one ended last, and when.
        self.turn_takers: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
        self.tickets: dict[Task, int] = {}  # the first one of its last call that waited
        self.began: dict[tuple[int, str], list[int]] = {}  # row, kind: first tickets of calls that wait
        self.multithread_rows: set[int] = set()  # rows of several threads: one that is awake may have the row's ticket

    def block_of(self, slot: int) -> int:
        """64 words, in C."""
        return slot // self.width

    def register_reader(self, name: str) -> None:
        """A reader's notes, for the check."""
        self.names.append(name)
        self.kernel.create({read_by(slot, name): None for slot in self.slots})

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

    # ---- what really happened ----

    def become_ready(self, slot: int, message: Message) -> None:
        """It is sent, or back."""
        if message.state == "new":
            self.messages.append(message)
            self.inside[slot] = message
        if message.incarnation:
            message.count = NEVER
        message.state = "ready"
        message.incarnation += 1

    def become_delayed(self, slot: int, message: Message, due: float) -> None:
        """It is sent with a delay, or returned with one."""
        if message.state == "new":
            self.messages.append(message)
            self.inside[slot] = message
        message.state, message.deadline = "delayed", due
        message.incarnation = max(message.incarnation, 1)  # it comes later than messages that were sent after it

    def check_lease_owner(self, actor: Task, slot: int, current: Word) -> None:
        """Only the owner of a slot writes its head."""
        if self.kernel.newest(word(slot)) != current:
            raise Violation("stolen", f"{actor.name} writes the head of slot {slot}, which is another's")

    def set_count(self, message: Message, incarnation: int, count: int) -> None:
        """`ready` has become `count`. Meanwhile somebody may have taken the message."""
        if message.state == "new" or (message.state == "ready" and message.incarnation == incarnation):
            message.count = count

    def mark_taken(self, actor: Task, slot: int, seen: int) -> Message:
        """By one whose last scan began when `ready` was `seen`."""
        self.owners[slot] = actor
        message = self.inside[slot]
        for other in self.inside.values():
            if other.state != "ready" or other is message:
                continue
            if other.count <= seen and other.key > message.key:
                raise Violation("best", f"{actor.name} takes {message}, and {other} was there before it looked")
            same_stream = (other.sender, other.priority) == (message.sender, message.priority)
            if same_stream and other.number < message.number and other.incarnation == 1:
                raise Violation("order", f"{actor.name} takes {message} before {other}")
        message.state, message.deadline = "taken", NEVER
        return message

    def ready_before(self, seen: int) -> list[tuple[Message, int]]:
        """What is READY, and was counted when `ready` became `seen`."""
        return [(message, message.incarnation) for message in self.waiting_messages() if message.count <= seen]

    def check_none_ready(self, actor: str, missing: list[tuple[Message, int]]) -> None:
        """A scan found nothing. `missing`: what was there when it began."""
        for message, incarnation in missing:
            if message.state == "ready" and message.incarnation == incarnation:
                raise Violation("best", f"{actor} finds nothing, and {message} is there")

    def mark_free(self, slot: int) -> None:
        """It is acknowledged, or was never sent."""
        if message := self.inside.pop(slot, None):
            if message.state != "taken":
                raise Violation("once", f"{message} is acknowledged, and it is {message.state}")
            message.state = "gone"

    def check_owner(self, actor: Task, slot: int, current: Word) -> None:
        """Somebody puts a word right that is not his."""
        if current[0] == "delayed":
            if self.inside[slot].deadline > self.kernel.clock:
                raise Violation("early", f"{actor.name} makes {self.inside[slot]} READY before it is due")
            return
        owner = self.owners[slot]
        over = current[0] == "taken" and self.inside[slot].deadline <= self.kernel.clock
        if not (owner is actor or owner.dead or owner.closed or over):
            raise Violation("stolen", f"{actor.name} takes back {current} of slot {slot}, and {owner.name} lives")

    def check_row(self, row: int) -> None:
        """It gets a new owner."""
        for bits in BITS:
            if row in self.kernel.newest(bits):
                raise Violation("leak", f"row {row} is handed on, and has its bit in {bits}")
        if self.kernel.newest(notify_debt(row)):
            raise Violation("leak", f"row {row} is handed on, and owes")

    def longest_asleep(self, kind: str) -> dict[int, Task]:
        """Who sleeps announced, and is not being woken: row -> its longest sleeper."""
        longest: dict[int, Task] = {}
        for task, at in self.kernel.asleep().items():
            for row in range(len(self.rows)):
                if at != row_eventcount(row, kind) or task.finished or self.kernel.newest(at)[1:] != (True, False):
                    continue
                if row not in longest or self.tickets[task] < self.tickets[longest[row]]:
                    longest[row] = task
        return longest

    def ticket_of(self, row: int, kind: str) -> int:
        """The smallest one of a row's calls; 0: unknown."""
        return 0 if row in self.multithread_rows else min(self.began.get((row, kind), ()), default=0)

    def find_overtaken_sleeper(self, kind: str, row: int, ticket: int, known: int) -> Task | None:
        """Who has slept for longer than the row that is to be woken, which has this ticket. The waker knows of all that
        slept by this step."""
        for other, task in self.longest_asleep(kind).items():
            if other != row and self.kernel.slept_at[task] < known and self.tickets[task] < ticket:
                return task
        return None

    def check_turn(self, kind: str, actor: Task, owner: int, ticket: int) -> None:
        """A call with this ticket found `owner` in the turn, and yields to smaller tickets only. It knows of each turn
        whose taker executed a fence after that, and before the last fence of this call."""
        known = self.kernel.fenced_at
        seen = [
            other for other, since in self.turn_takers[kind] if since < known[self.calls[other]] < known.get(actor, 0)
        ]
        oldest = min(seen, default=ticket)
        if oldest < ticket and not 0 < owner <= oldest:
            raise Violation("fair", f"{actor.name} overtakes ticket {oldest}, for which the turn was taken")

    def check_wakes(self, actor: str, wakes: int, most: int) -> None:
        """A call was woken again, and found nothing."""
        if wakes > most:
            raise Violation("fair", f"{actor} was woken {wakes} times without result")

    def waiting_messages(self) -> list[Message]:
        """Those that are READY."""
        return [message for message in self.inside.values() if message.state == "ready"]

    def room(self) -> int:
        """Words that are 0."""
        return sum(self.kernel.newest(word(slot)) == FREE for slot in self.slots)

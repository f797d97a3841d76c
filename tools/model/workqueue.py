"""Work queues (msgq/impl/workqueue/): a word for each message says whose it is.

| word | says | who writes |
|---|---|---|
| `word[place]` | FREE, HELD by a row's owner, READY with priority and order, or TAKEN | senders, receivers, sweepers |
| `entered[block]` | messages whose sending began in these places | senders, between HELD and READY |
| `ready` | messages that became READY, also again | senders, and who gives one back |
| `arrived` | messages that somebody was to be told of | senders, and who gives one back |
| `attention[row][kind]` | its sleepers of that kind announced themselves; wakes | sleepers, and who wakes |
| `receivers_waiting` ... | a bit for each row: its owner sleeps, or wants to be told | sleepers, and for the dead |
| `generation[row]`, `uid[row]` | the owner of a row | joiners, under a lock |
| `tickets`, `since[row][kind]` | calls that ever waited; the ticket of a row's longest waiter | those who wait |
| `turn[kind]` | the ticket of the call that is served next | that call; who yields to a dead one |
| `owes[row]` | its owner may still have to tell of an arrival | that one, and for the dead |

Each receiver remembers, for itself, the best message of each block, for as long as `entered` stands. A message wakes
one row: also one whose owner is stopped, or dies before it looks. Handles are killed, or stopped for ever,
between any two steps; locks of rows and the file's lock are the kernel's, and one that is stopped while it takes a row
keeps what the dead of that row left. Blocks have one to three places.

workqueue_store.py has the words and what really happened, workqueue_sleep.py, workqueue_handle.py, workqueue_sender.py
and workqueue_receiver.py the protocol, workqueue_stage.py who takes part and what must hold at the end.
"""

from collections.abc import Callable
from random import Random

from .channel_hub import C11
from .memory import ACQUIRE, RELAXED
from .protocol import Scenario, mutations_of
from .task import Op, Steps
from .workqueue_receiver import Receiver
from .workqueue_sender import Sender
from .workqueue_sleep import FOR_EVER
from .workqueue_stage import Cue, Jobs, steered
from .workqueue_store import ARRIVED, FREE, NOTIFIED, READY, Rules, word
from .workqueue_turn import OVERTAKEN_MAX

PROTOCOL = Rules()


def workqueue(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Two or three senders and two receivers that poll, killed or stopped anywhere; some messages are refused."""
    stage = Jobs(rng, rules, traced, blocks=2, width=1 + int(rng.random() * 2), rows=5)
    stage.ends = 60
    for number in range(2 + stage.below(2)):
        stage.sender(f"sender {number}", 2 + stage.below(4), batches=0.2)
    for number in range(2):
        stage.receiver(f"receiver {number}", 3 + stage.below(5), refuses=0.2, idles=1)
    return stage


def workqueue_order(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """One or two senders and one or two receivers, nobody dies: who gets what, in which order."""
    stage = Jobs(rng, rules, traced, blocks=2, width=1 + int(rng.random() * 2), rows=4)
    for number in range(1 + stage.below(2)):
        stage.sender(f"sender {number}", 4 + stage.below(4), priorities=1 + stage.below(2), batches=0.3)
    for number in range(1 + stage.below(2)):
        stage.receiver(f"receiver {number}", 6 + stage.below(5))
    return stage


def workqueue_memory(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """What receivers remember of blocks: messages come back, and some have their places from long ago."""
    stage = Jobs(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=2 + int(rng.random() * 2), rows=5)
    for number in range(2):
        stage.sender(f"sender {number}", 2 + stage.below(4))
    for number in range(2 + stage.below(2)):
        stage.receiver(f"receiver {number}", 4 + stage.below(5), refuses=0.4, idles=2)
    return stage


def workqueue_sleep(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Receivers that sleep, some in one row, beside watchers; some have no time left; in a third of the cases some are
    killed or stopped."""
    stage = Jobs(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=1 + int(rng.random() * 2), rows=6)
    stage.ends, stage.leaves = 50 if stage.chance(0.3) else 0, stage.chance(0.5)
    for number in range(1 + stage.below(2)):
        stage.sender(f"sender {number}", 1 + stage.below(3), batches=0.3)
    for number in range(1 + stage.below(2)):
        patience = stage.below(2) if stage.chance(0.4) else FOR_EVER
        threads = 1 + stage.below(2)
        stage.sleeper(f"sleeper {number}", 1 + stage.below(3), patience=patience, threads=threads, refuses=0.2)
    if stage.chance(0.4):
        stage.watcher("watcher", 1 + stage.below(2), threads=1 + stage.below(2))
    stage.clock(stage.below(6))
    return stage


def workqueue_wakes(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Two or three that send at a time, of whom some are stopped or killed, and receivers that all sleep."""
    stage = Jobs(rng, rules, traced, blocks=1, width=3, rows=5)
    stage.leaves = False
    for number in range(1 + stage.below(3)):
        stage.sleeper(f"sleeper {number}", 1, threads=1 + stage.chance(0.3))
    stage.ends = 40 if stage.chance(0.5) else 0
    for number in range(2):
        stage.sender(f"sender {number}", 1 + stage.below(2))
    return stage


def workqueue_full(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Senders that sleep when there is no room, some in one row, and others that only look for some."""
    stage = Jobs(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 2), rows=6)
    alone = stage.chance(0.5)  # one sender waits, and nothing else helps it on
    stage.ends, stage.leaves = 60 if not alone and stage.chance(0.5) else 0, stage.chance(0.5)
    if not alone and stage.chance(0.5):
        stage.space_waiter("looks for room", stage.below(3))
    for number in range(1 if alone else 1 + stage.below(2)):
        patience = stage.below(2) if not alone and stage.chance(0.4) else FOR_EVER
        threads = 1 + stage.below(2) * (not alone)
        stage.sender(f"sender {number}", 2 + stage.below(2), waits=True, patience=patience, threads=threads)
    for number in range(1 + stage.below(2)):
        stage.receiver(f"receiver {number}", 1 + stage.below(3))
    if not alone:
        stage.clock(stage.below(6))
    return stage


def workqueue_fair(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Up to three that wait, for messages or for room, beside one that takes what it can and never waits."""
    stage = Jobs(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 2), rows=5)
    if stage.chance(0.5):
        for number in range(1 + stage.below(3)):
            stage.sleeper(f"sleeper {number}", 1 + stage.below(3))
        stage.receiver("takes", 12)
        stage.sender("sender", 8, priorities=1)
    else:
        for number in range(1 + stage.below(3)):
            stage.sender(f"sender {number}", 1 + stage.below(2), waits=True, patience=FOR_EVER)
        stage.sender("takes", 10)
        stage.receiver("receiver", 14)
    return stage


def workqueue_turns(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """The same of a few messages, where others were faster before: one or two take a turn at once. In half of the cases
    some are killed or stopped."""
    stage = Jobs(rng, rules, traced, blocks=1, width=2, rows=5)
    stage.ends, stage.leaves = 50 if stage.chance(0.5) else 0, False
    overtaken = [OVERTAKEN_MAX * stage.below(2), OVERTAKEN_MAX * stage.below(2), OVERTAKEN_MAX * (stage.below(4) == 0)]
    if stage.chance(0.5):
        for number in range(2 + stage.below(2)):
            stage.sleeper(f"sleeper {number}", 1, threads=1 + stage.chance(0.2), overtaken=overtaken[number])
        stage.sender("sender", 2, batches=0.3)
        stage.sender("second sender", 2)
    else:
        for number in range(2 + stage.below(2)):
            stage.sender(f"sender {number}", 2, waits=True, patience=FOR_EVER, overtaken=overtaken[number])
        stage.receiver("receiver", 3)
        stage.receiver("second receiver", 3)
    if stage.ends:
        stage.clock(stage.below(3))
    return stage


def workqueue_rows(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Rows change hands: those who come take rows of the dead, while others sweep, send and sleep."""
    stage = Jobs(rng, rules, traced, blocks=2, width=1, rows=3)
    stage.ends, stage.stops = 40, stage.chance(0.3)
    stage.sender("sender", 2 + stage.below(3))
    stage.receiver("receiver", 3 + stage.below(4), idles=2)
    if stage.chance(0.5):
        stage.sleeper("sleeper", 2)
    else:
        stage.sender("second sender", 2, waits=True, patience=1)
    for number in range(1 + stage.below(2)):
        stage.sender(f"late sender {number}", 1 + stage.below(2), late=True)
        stage.receiver(f"late receiver {number}", 2 + stage.below(3), late=True, idles=1)
    stage.clock(stage.below(3))
    return stage


def workqueue_bits(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """The same of sleepers alone: their bits are cleared for the dead, and set by the next ones in their rows."""
    stage = Jobs(rng, rules, traced, blocks=1, width=2, rows=3)
    stage.ends, stage.stops = 25, False
    stage.sleeper("sleeper", 1)
    stage.sleeper("second sleeper", 1)
    stage.late_sleeper("late sleeper", 1)
    stage.late_sleeper("second late sleeper", 1)
    stage.ends = 0
    stage.sender("sender", 2 + stage.below(2))
    stage.clock(1 + stage.below(4))
    return stage


def workqueue_lease(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """Messages are lent, and come back when their time is over; their takers go on all the same."""
    stage = Jobs(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=1, rows=4)
    for number in range(1 + stage.below(2)):
        stage.sender(f"sender {number}", 2 + stage.below(4))
    for number in range(2):
        stage.receiver(f"receiver {number}", 4 + stage.below(4), lends=0.6, idles=3, refuses=0.2)
    return stage


def workqueue_told(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """One that takes what is there when it is told, beside receivers that wait, and go away."""
    stage = Jobs(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 3), rows=6)
    stage.ends, stage.stops, stage.leaves = 50 if stage.chance(0.3) else 0, False, stage.chance(0.5)
    for number in range(1 + stage.below(2)):
        stage.sender(f"sender {number}", 1 + stage.below(3), batches=0.1)
    stage.drainer("is told")
    if stage.chance(0.3):  # senders leave messages to one that takes one
        stage.leaves = False
        stage.sleeper("sleeper", 1)
        return stage
    for number in range(stage.below(3)):
        if stage.chance(0.5):
            patience = FOR_EVER * stage.below(2)
            overtaken = OVERTAKEN_MAX * stage.below(2)
            stage.sleeper(
                f"sleeper {number}", 1 + stage.below(2), patience=patience, overtaken=overtaken, refuses=0.3, idles=1
            )
        else:
            stage.receiver(f"receiver {number}", 1 + stage.below(3), refuses=0.5, idles=2)
    return stage


def workqueue_tie(rng: Random, rules: Rules, traced: bool) -> Jobs:
    """As before, and two messages of the same order have the same place, one after the other: to a third sender, who
    looks before and after, they are one. In between the queue was empty, and its message came."""
    stage = Jobs(rng, rules, traced, blocks=1, width=2, rows=4)
    stage.leaves = False  # who leaves tells in any case
    host, seen = stage.host, set[str]()
    host.staleness = 0.0  # or somebody would miss its cue
    senders = [Sender(stage.store, name) for name in ("first", "tied", "looks")]
    told = Receiver(stage.store, "is told")
    senders[2].hint = 1

    def has(cue: str) -> Callable[[], bool]:
        return lambda: cue in seen

    def place_is_free() -> bool:
        return "looked" in seen and bool(host.newest(word(0)) == FREE)

    def told_again() -> bool:
        return bool(host.newest(ARRIVED)) and told.task.asleep

    def may_look() -> bool:
        return {"posted", "registered"} <= seen

    cues = {
        "first": [Cue("posted", counts, has("ordered"))],
        "tied": [
            Cue("", begins, place_is_free),
            Cue("ordered", looks_around, has("came")),
            Cue("back", counts, at_once),
        ],
        "looks": [
            Cue("", begins, may_look),
            Cue("looked", posts, told_again),
            Cue("came", counts, has("back")),
        ],
    }
    for sender in senders:
        stage.start(sender, steered(one_message(sender), cues[sender.name], seen))
    stage.start(told, steered(told.drain_when_told(), [Cue("registered", drains, has("looked"))], seen))
    return stage


def at_once() -> bool:
    """A cue that only tells the others."""
    return True


def one_message(sender: Sender) -> Steps[None]:
    """Send it."""
    yield from sender.send(0)


def begins(op: Op) -> bool:
    """Its first step."""
    return True


def looks_around(op: Op) -> bool:
    """The message has its order."""
    return bool(op[0].startswith("load") and op[1] == NOTIFIED)


def posts(op: Op) -> bool:
    """The message is about to be READY."""
    return bool(op[0] == "store" and op[1].startswith("word"))


def drains(op: Op) -> bool:
    """It is to be told of what comes from now on."""
    return bool(op[0] == "load" and op[1] == ARRIVED)


def counts(op: Op) -> bool:
    """It is READY, and about to be counted."""
    return bool(op[0].startswith("rmw") and op[1] == READY)


ALL_SCENARIOS: list[Scenario] = [workqueue, workqueue_order, workqueue_memory, workqueue_sleep, workqueue_wakes]
ALL_SCENARIOS += [workqueue_full, workqueue_fair, workqueue_turns]
ALL_SCENARIOS += [workqueue_rows, workqueue_bits, workqueue_lease, workqueue_told, workqueue_tie]
SCENARIOS = {scenario.__name__: scenario for scenario in ALL_SCENARIOS}

mutation = mutations_of(PROTOCOL)
SENDING = [
    mutation("queue-word-relaxed", "workqueue_order", "a word becomes READY relaxed", word_store=RELAXED),
    mutation("queue-count-first", "workqueue_order", "counted, then READY", count_last=False),
    mutation("queue-count-relaxed", "workqueue_order", "counted relaxed", count_seq_cst=False),
    mutation("queue-one-count", "workqueue_order", "a batch is counted at its end", count_each=False),
    mutation("queue-entered-late", "workqueue_sleep", "entered is counted behind READY", entered="after"),
    mutation("queue-not-entered", "workqueue_memory", "entered is not counted", entered="never"),
    mutation("queue-entered-relaxed", "workqueue_memory", "entered is counted relaxed", entered_seq_cst=False),
]
RECEIVING = [
    mutation("queue-count-load", "workqueue_order", "the count is loaded relaxed", count_load=RELAXED),
    mutation("queue-no-second-look", "workqueue_order", "the count is not looked at again", look_again=False),
    mutation("queue-scan-fence", "workqueue_order", "no fence: words, count", scan_fence=RELAXED),
    mutation("queue-entered-load", "workqueue_memory", "entered is loaded relaxed", entered_load=RELAXED),
    mutation("queue-entered-last", "workqueue_memory", "words, then entered", entered_first=False),
    mutation("queue-held-kept", "workqueue_memory", "a block with HELD is remembered", remembers_held=True),
    mutation("queue-taken-kept", "workqueue_memory", "a block with TAKEN is remembered", remembers_taken=True),
    mutation("queue-failed-kept", "workqueue_memory", "what is gone is remembered", forgets_failed=False),
    mutation("queue-free-relaxed", "workqueue", "a place is freed relaxed", free="relaxed"),
]
REPAIRING = [
    mutation("queue-death-guessed", "workqueue", "nobody asks who lives", life_asked=False),
    mutation("queue-stale-word", "workqueue_rows", "a sweep loads words relaxed", sweep_load=RELAXED),
    mutation("queue-generation", "workqueue_rows", "generations are not compared", generation_compared=False),
    mutation("queue-bits-uncleaned", "workqueue_bits", "a row is handed on with its bits", row_settled=False),
    mutation(
        "queue-no-generation",
        "workqueue_rows",
        "words name a row alone",
        words_name_generation=False,
        generation_compared=False,
    ),
    mutation("queue-bits-unlocked", "workqueue_bits", "bits are cleared without a lock", dead_bits_locked=False),
    mutation("queue-lease-any", "workqueue_lease", "a lease may be another's", lease_take_compared=False),
    mutation("queue-lease-early", "workqueue_lease", "the lease is stored before the copy", lease_last=False),
    mutation("queue-lease-relaxed", "workqueue_lease", "the lease is stored relaxed", lease_store=RELAXED),
]
SLEEPING = [
    mutation("queue-one-flag", "workqueue_sleep", "sleepers share a flag", bit_each=False),
    mutation("queue-no-bit", "workqueue_sleep", "no bit is set", sets_bit=False),
    mutation("queue-row-mate", "workqueue_sleep", "a bit goes off beside a sleeping thread", threads_counted=False),
    mutation("queue-look-first", "workqueue_sleep", "words, then the announcement", announces_first=False),
    mutation("queue-bits-first", "workqueue_wakes", "bits, then READY", bits_last=False),
    mutation("queue-sleep-fence", "workqueue_full", "no fence: bit, words", sleeper_fence=RELAXED),
    mutation("queue-look-count", "workqueue_wakes", "`ready` is not loaded", look_loads_count=False, cpu=C11),
    mutation("queue-teller-fence", "workqueue_told", "no fence: taken, words", teller_fence=RELAXED, cpu=C11),
    mutation(
        "queue-leaver-fence",
        "workqueue_told",
        "no fence: bit cleared, words",
        leaver_fence=RELAXED,
        teller_fence=RELAXED,
        cpu=C11,
    ),
    mutation("queue-clear-first", "workqueue_wakes", "announcements go before the wake", flag_stands=False),
    mutation("queue-due-relaxed", "workqueue_wakes", "bits, flags: loaded relaxed", looks_seq_cst=False, cpu=C11),
    mutation("queue-wake-shared", "workqueue_wakes", "two count one wake", announcement_counts_once=False),
    mutation("queue-free-release", "workqueue_full", "a place is freed by release only", free="release"),
    mutation("queue-watcher-one", "workqueue_sleep", "a watcher has a receiver's wake", watchers_extra=False),
    mutation("queue-wake-kept", "workqueue_sleep", "a wake is not handed on", leaver_passes_on=False),
    mutation("queue-room-kept", "workqueue_full", "who looks for room keeps the wake", space_passes_on=False),
]
FAIRNESS = [
    mutation("queue-first-row", "workqueue_fair", "the first row is woken", wakes_longest=False),
    mutation("queue-ticket-late", "workqueue_fair", "an announcement, then its ticket", ticket_first=False),
    mutation("queue-ticket-new", "workqueue_fair", "each sleep has a ticket of its own", ticket_kept=False),
    mutation("queue-no-turns", "workqueue_fair", "calls that do not sleep take all", turns=False),
    mutation("queue-all-yield", "workqueue_turns", "those that waited for longer yield, too", larger_yield=False),
    mutation("queue-turn-younger", "workqueue_turns", "a younger call keeps the turn", turn_taken_over=False),
    mutation("queue-turn-kept", "workqueue_turns", "a turn stays when its call ends", turn_ends=False),
    mutation("queue-turn-silent", "workqueue_turns", "its end wakes nobody", turn_end_wakes=False),
    mutation("queue-turn-untold", "workqueue_told", "its end tells nobody", turn_end_tells=False),
    mutation("queue-dead-turn", "workqueue_turns", "the turn of a dead one stays", dead_turns_end=False),
]
TELLING = [
    mutation("queue-survey-before", "workqueue_told", "looked at before only", surveys="before"),
    mutation("queue-survey-after", "workqueue_told", "looked at after only", surveys="after"),
    mutation("queue-survey-fence", "workqueue_told", "no fence: count, words", survey_fence=RELAXED, cpu=C11),
    mutation("queue-vain-fence", "workqueue_told", "words, count: acquire only", vain_fence=ACQUIRE, cpu=C11),
    mutation("queue-told-early", "workqueue_told", "who is to be told: before only", notified_looked_at_last=False),
    mutation("queue-survey-entered", "workqueue_tie", "entered not compared", survey_compares_entered=False),
    mutation("queue-back-silent", "workqueue_told", "what comes back tells as a send", returned_tells=False),
    mutation("queue-leaver-silent", "workqueue_told", "a waiter that leaves tells nobody", leaver_tells=False),
    mutation("queue-taker-silent", "workqueue_told", "one that got one neither", taker_tells=False),
    mutation("queue-no-debts", "workqueue_told", "debts of the dead are not known", debts=False),
    mutation("queue-dead-silent", "workqueue_told", "a dead waiter's bit tells nobody", sweeper_tells=False),
]
MUTATIONS = {each.name: each for each in SENDING + RECEIVING + REPAIRING + SLEEPING + FAIRNESS + TELLING}

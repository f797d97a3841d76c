"""Work queues (msgq/impl/workqueue/): a word for each message says whose it is.

| word | says | who writes |
|---|---|---|
| `word[slot]` | FREE, FILLING (row), READY (priority, order), TAKEN or DELAYED (row) | senders, receivers, sweepers |
| `fill_count[block]` | messages whose sending began in these slots | senders, between FILLING and READY |
| `ready` | messages that became READY, also again | senders, and who gives one back |
| `notify_seq` | messages that somebody was to be told of | senders, and who gives one back |
| `eventcount[row][kind]` | its sleepers of that kind announced themselves; wakes | sleepers, and who wakes |
| `receivers_waiting` ... | a bit for each row: its owner sleeps, or wants to be told | sleepers, and for the dead |
| `generation[row]`, `uid[row]` | the owner of a row | joiners, under a lock |
| `tickets`, `since[row][kind]` | calls that ever waited; the ticket of a row's longest waiter | those who wait |
| `turn[kind]` | the ticket of the call that is served next | that call; who yields to a dead one |
| `notify_debt[row]` | its owner may still have to tell of an arrival | that one, and for the dead |

Each receiver remembers, for itself, the best message of each block, for as long as `fill_count` stands. A message wakes
one row: also one whose owner is stopped, or dies before it looks. Handles are killed, or stopped for ever,
between any two steps; locks of rows and the file's lock are the kernel's, and one that is stopped while it takes a row
keeps what the dead of that row left. Blocks have one to three slots.

workqueue_shared.py has the words and what really happened, workqueue_sleep.py, workqueue_handle.py, workqueue_sender.py
and workqueue_receiver.py the protocol, workqueue_scenario.py who takes part and what must hold at the end.
"""

from collections.abc import Callable
from random import Random

from .channel_shared import C11
from .memory import ACQUIRE, RELAXED
from .protocol import Scenario, mutations_of
from .task import Op, Steps
from .workqueue_receiver import Receiver
from .workqueue_scenario import Cue, QueueModel, wait_at_cues
from .workqueue_sender import Sender
from .workqueue_shared import FREE, NOTIFY_REQUESTED, NOTIFY_SEQ, READY, Rules, word
from .workqueue_sleep import WAIT_FOREVER
from .workqueue_turn import OVERTAKEN_MAX

PROTOCOL = Rules()


def workqueue(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Two or three senders and two receivers that poll, killed or stopped anywhere; some messages are refused."""
    model = QueueModel(rng, rules, traced, blocks=2, width=1 + int(rng.random() * 2), rows=5)
    model.ends = 60
    for number in range(2 + model.below(2)):
        model.sender(f"sender {number}", 2 + model.below(4), batches=0.2)
    for number in range(2):
        model.receiver(f"receiver {number}", 3 + model.below(5), refuses=0.2, idles=1)
    return model


def workqueue_order(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """One or two senders and one or two receivers, nobody dies: who gets what, in which order."""
    model = QueueModel(rng, rules, traced, blocks=2, width=1 + int(rng.random() * 2), rows=4)
    for number in range(1 + model.below(2)):
        model.sender(f"sender {number}", 4 + model.below(4), priorities=1 + model.below(2), batches=0.3)
    for number in range(1 + model.below(2)):
        model.receiver(f"receiver {number}", 6 + model.below(5))
    return model


def workqueue_cache(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """What receivers remember of blocks: messages come back, and some have their slots from long ago."""
    model = QueueModel(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=2 + int(rng.random() * 2), rows=5)
    for number in range(2):
        model.sender(f"sender {number}", 2 + model.below(4))
    for number in range(2 + model.below(2)):
        model.receiver(f"receiver {number}", 4 + model.below(5), refuses=0.4, idles=2)
    return model


def workqueue_sleep(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Receivers that sleep, some in one row, beside watchers; some have no time left; in a third of the cases some are
    killed or stopped."""
    model = QueueModel(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=1 + int(rng.random() * 2), rows=6)
    model.ends, model.leaves = 50 if model.chance(0.3) else 0, model.chance(0.5)
    for number in range(1 + model.below(2)):
        model.sender(f"sender {number}", 1 + model.below(3), batches=0.3)
    for number in range(1 + model.below(2)):
        patience = model.below(2) if model.chance(0.4) else WAIT_FOREVER
        threads = 1 + model.below(2)
        model.sleeper(f"sleeper {number}", 1 + model.below(3), patience=patience, threads=threads, refuses=0.2)
    if model.chance(0.4):
        model.watcher("watcher", 1 + model.below(2), threads=1 + model.below(2))
    model.clock(model.below(6))
    return model


def workqueue_wakes(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Two or three that send at a time, of whom some are stopped or killed, and receivers that all sleep."""
    model = QueueModel(rng, rules, traced, blocks=1, width=3, rows=5)
    model.leaves = False
    for number in range(1 + model.below(3)):
        model.sleeper(f"sleeper {number}", 1, threads=1 + model.chance(0.3))
    model.ends = 40 if model.chance(0.5) else 0
    for number in range(2):
        model.sender(f"sender {number}", 1 + model.below(2))
    return model


def workqueue_full(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Senders that sleep when there is no room, some in one row, and others that only look for some."""
    model = QueueModel(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 2), rows=6)
    alone = model.chance(0.5)  # one sender waits, and nothing else helps it on
    model.ends, model.leaves = 60 if not alone and model.chance(0.5) else 0, model.chance(0.5)
    if not alone and model.chance(0.5):
        model.space_waiter("looks for room", model.below(3))
    for number in range(1 if alone else 1 + model.below(2)):
        patience = model.below(2) if not alone and model.chance(0.4) else WAIT_FOREVER
        threads = 1 + model.below(2) * (not alone)
        model.sender(f"sender {number}", 2 + model.below(2), waits=True, patience=patience, threads=threads)
    for number in range(1 + model.below(2)):
        model.receiver(f"receiver {number}", 1 + model.below(3))
    if not alone:
        model.clock(model.below(6))
    return model


def workqueue_fair(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Up to three that wait, for messages or for room, beside one that takes what it can and never waits."""
    model = QueueModel(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 2), rows=5)
    if model.chance(0.5):
        for number in range(1 + model.below(3)):
            model.sleeper(f"sleeper {number}", 1 + model.below(3))
        model.receiver("takes", 12)
        model.sender("sender", 8, priorities=1)
    else:
        for number in range(1 + model.below(3)):
            model.sender(f"sender {number}", 1 + model.below(2), waits=True, patience=WAIT_FOREVER)
        model.sender("takes", 10)
        model.receiver("receiver", 14)
    return model


def workqueue_turns(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """The same of a few messages, where others were faster before: one or two take a turn at once. In half of the cases
    some are killed or stopped."""
    model = QueueModel(rng, rules, traced, blocks=1, width=2, rows=5)
    model.ends, model.leaves = 50 if model.chance(0.5) else 0, False
    overtaken = [OVERTAKEN_MAX * model.below(2), OVERTAKEN_MAX * model.below(2), OVERTAKEN_MAX * (model.below(4) == 0)]
    if model.chance(0.5):
        for number in range(2 + model.below(2)):
            model.sleeper(f"sleeper {number}", 1, threads=1 + model.chance(0.2), overtaken=overtaken[number])
        model.sender("sender", 2, batches=0.3)
        model.sender("second sender", 2)
    else:
        for number in range(2 + model.below(2)):
            model.sender(f"sender {number}", 2, waits=True, patience=WAIT_FOREVER, overtaken=overtaken[number])
        model.receiver("receiver", 3)
        model.receiver("second receiver", 3)
    if model.ends:
        model.clock(model.below(3))
    return model


def workqueue_rows(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Rows change hands: those who come take rows of the dead, while others sweep, send and sleep."""
    model = QueueModel(rng, rules, traced, blocks=2, width=1, rows=3)
    model.ends, model.stops = 40, model.chance(0.3)
    model.sender("sender", 2 + model.below(3))
    model.receiver("receiver", 3 + model.below(4), idles=2)
    if model.chance(0.5):
        model.sleeper("sleeper", 2)
    else:
        model.sender("second sender", 2, waits=True, patience=1)
    for number in range(1 + model.below(2)):
        model.sender(f"late sender {number}", 1 + model.below(2), late=True)
        model.receiver(f"late receiver {number}", 2 + model.below(3), late=True, idles=1)
    model.clock(model.below(3))
    return model


def workqueue_bits(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """The same of sleepers alone: their bits are cleared for the dead, and set by the next ones in their rows."""
    model = QueueModel(rng, rules, traced, blocks=1, width=2, rows=3)
    model.ends, model.stops = 25, False
    model.sleeper("sleeper", 1)
    model.sleeper("second sleeper", 1)
    model.late_sleeper("late sleeper", 1)
    model.late_sleeper("second late sleeper", 1)
    model.ends = 0
    model.sender("sender", 2 + model.below(2))
    model.clock(1 + model.below(4))
    return model


def workqueue_lease(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Messages are lent, and come back when their time is over; their takers go on all the same."""
    model = QueueModel(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=1, rows=4)
    for number in range(1 + model.below(2)):
        model.sender(f"sender {number}", 2 + model.below(4))
    for number in range(2):
        model.receiver(f"receiver {number}", 4 + model.below(4), lends=0.6, idles=3, refuses=0.2)
    return model


def workqueue_delay(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """Messages are sent or returned with a delay, also after their lease is over; some who delayed one are killed."""
    model = QueueModel(rng, rules, traced, blocks=1 + int(rng.random() * 2), width=1 + int(rng.random() * 2), rows=5)
    model.ends = 60 if model.chance(0.3) else 0
    for number in range(1 + model.below(2)):
        model.sender(f"sender {number}", 2 + model.below(3), delays=0.5)
    for number in range(2):
        model.receiver(f"receiver {number}", 4 + model.below(4), lends=0.4, idles=3, refuses=0.2, delays=0.4)
    if model.chance(0.3):
        model.sleeper("sleeper", 1)
        model.clock(model.below(4))
    return model


def workqueue_notify(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """One that takes what is there when it is told, beside receivers that wait, and go away."""
    model = QueueModel(rng, rules, traced, blocks=1, width=1 + int(rng.random() * 3), rows=6)
    model.ends, model.stops, model.leaves = 50 if model.chance(0.3) else 0, False, model.chance(0.5)
    for number in range(1 + model.below(2)):
        model.sender(f"sender {number}", 1 + model.below(3), batches=0.1)
    model.drainer("is told")
    if model.chance(0.3):  # senders leave messages to one that takes one
        model.leaves = False
        model.sleeper("sleeper", 1)
        return model
    for number in range(model.below(3)):
        if model.chance(0.5):
            patience = WAIT_FOREVER * model.below(2)
            overtaken = OVERTAKEN_MAX * model.below(2)
            model.sleeper(
                f"sleeper {number}", 1 + model.below(2), patience=patience, overtaken=overtaken, refuses=0.3, idles=1
            )
        else:
            model.receiver(f"receiver {number}", 1 + model.below(3), refuses=0.5, idles=2)
    return model


def workqueue_tie(rng: Random, rules: Rules, traced: bool) -> QueueModel:
    """As before, and two messages of the same order have the same slot, one after the other: to a third sender, who
    looks before and after, they are one. In between the queue was empty, and its message came."""
    model = QueueModel(rng, rules, traced, blocks=1, width=2, rows=4)
    model.leaves = False  # who leaves tells in any case
    kernel, seen = model.kernel, set[str]()
    kernel.staleness = 0.0  # or somebody would miss its cue
    senders = [Sender(model.shared, name) for name in ("first", "tied", "looks")]
    notified = Receiver(model.shared, "is told")
    senders[2].hint = 1

    def has(cue: str) -> Callable[[], bool]:
        return lambda: cue in seen

    def slot_is_free() -> bool:
        return "looked" in seen and bool(kernel.newest(word(0)) == FREE)

    def is_notified_again() -> bool:
        return bool(kernel.newest(NOTIFY_SEQ)) and notified.task.asleep

    def may_look() -> bool:
        return {"posted", "registered"} <= seen

    cues = {
        "first": [Cue("posted", counts, has("ordered"))],
        "tied": [
            Cue("", begins, slot_is_free),
            Cue("ordered", looks_around, has("came")),
            Cue("back", counts, at_once),
        ],
        "looks": [
            Cue("", begins, may_look),
            Cue("looked", posts, is_notified_again),
            Cue("came", counts, has("back")),
        ],
    }
    for sender in senders:
        model.start(sender, wait_at_cues(one_message(sender), cues[sender.name], seen))
    model.start(
        notified, wait_at_cues(notified.drain_when_notified(), [Cue("registered", drains, has("looked"))], seen)
    )
    return model


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
    return bool(op[0].startswith("load") and op[1] == NOTIFY_REQUESTED)


def posts(op: Op) -> bool:
    """The message is about to be READY."""
    return bool(op[0] == "store" and op[1].startswith("word"))


def drains(op: Op) -> bool:
    """It is to be told of what comes from now on."""
    return bool(op[0] == "load" and op[1] == NOTIFY_SEQ)


def counts(op: Op) -> bool:
    """It is READY, and about to be counted."""
    return bool(op[0].startswith("rmw") and op[1] == READY)


SCENARIO_LIST: list[Scenario] = [workqueue, workqueue_order, workqueue_cache, workqueue_sleep, workqueue_wakes]
SCENARIO_LIST += [workqueue_full, workqueue_fair, workqueue_turns]
SCENARIO_LIST += [workqueue_rows, workqueue_bits, workqueue_lease, workqueue_delay, workqueue_notify, workqueue_tie]
SCENARIOS = {scenario.__name__: scenario for scenario in SCENARIO_LIST}

mutation = mutations_of(PROTOCOL)
SENDING = [
    mutation("queue-word-relaxed", "workqueue_order", "a word becomes READY relaxed", word_store=RELAXED),
    mutation("queue-count-first", "workqueue_order", "counted, then READY", count_last=False),
    mutation("queue-count-relaxed", "workqueue_order", "counted relaxed", count_seq_cst=False),
    mutation("queue-one-count", "workqueue_order", "a batch is counted at its end", count_each=False),
    mutation("queue-fill-count-late", "workqueue_sleep", "fill_count is counted behind READY", fill_counted="after"),
    mutation("queue-not-fill-count", "workqueue_cache", "fill_count is not counted", fill_counted="never"),
    mutation("queue-fill-count-relaxed", "workqueue_cache", "fill_count is counted relaxed", fill_count_seq_cst=False),
]
RECEIVING = [
    mutation("queue-count-load", "workqueue_order", "the count is loaded relaxed", count_load=RELAXED),
    mutation("queue-no-second-look", "workqueue_order", "the count is not looked at again", rechecks=False),
    mutation("queue-scan-fence", "workqueue_order", "no fence: words, count", scan_fence=RELAXED),
    mutation("queue-fill-count-load", "workqueue_cache", "fill_count is loaded relaxed", fill_count_load=RELAXED),
    mutation("queue-fill-count-last", "workqueue_cache", "words, then fill_count", fill_count_first=False),
    mutation("queue-filling-cached", "workqueue_cache", "a block with FILLING is remembered", caches_filling=True),
    mutation("queue-taken-cached", "workqueue_cache", "a block with TAKEN is remembered", caches_taken=True),
    mutation("queue-failed-cached", "workqueue_cache", "what is gone is remembered", invalidates_failed=False),
    mutation("queue-free-relaxed", "workqueue", "a slot is freed relaxed", free="relaxed"),
]
REPAIRING = [
    mutation("queue-no-liveness-check", "workqueue", "nobody asks who lives", liveness_checked=False),
    mutation("queue-stale-word", "workqueue_rows", "a sweep loads words relaxed", recovery_load=RELAXED),
    mutation("queue-generation", "workqueue_rows", "generations are not compared", generation_compared=False),
    mutation("queue-bits-uncleaned", "workqueue_bits", "a row is handed on with its bits", row_recovered=False),
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
    mutation("queue-delay-not-renewed", "workqueue_delay", "the old take number stays", delay_renews_take=False),
    mutation("queue-delay-late", "workqueue_delay", "the due time is stored after DELAYED", due_time_first=False),
    mutation(
        "queue-delay-relaxed", "workqueue_delay", "due time and DELAYED are stored relaxed", delayed_store=RELAXED
    ),
    mutation("queue-delay-owned", "workqueue_delay", "a delay ends with its owner", delayed_needs_owner=True),
]
SLEEPING = [
    mutation("queue-one-flag", "workqueue_sleep", "sleepers share a flag", bit_each=False),
    mutation("queue-no-bit", "workqueue_sleep", "no bit is set", sets_bit=False),
    mutation("queue-row-mate", "workqueue_sleep", "a bit goes off beside a sleeping thread", threads_counted=False),
    mutation("queue-look-first", "workqueue_sleep", "words, then the announcement", announces_first=False),
    mutation("queue-bits-first", "workqueue_wakes", "bits, then READY", bits_last=False),
    mutation("queue-sleep-fence", "workqueue_full", "no fence: bit, words", sleeper_fence=RELAXED),
    mutation("queue-look-count", "workqueue_wakes", "`ready` is not loaded", sleep_check_loads_count=False, cpu=C11),
    mutation("queue-notifier-fence", "workqueue_notify", "no fence: taken, words", notifier_fence=RELAXED, cpu=C11),
    mutation(
        "queue-leaver-fence",
        "workqueue_notify",
        "no fence: bit cleared, words",
        leaver_fence=RELAXED,
        notifier_fence=RELAXED,
        cpu=C11,
    ),
    mutation("queue-clear-first", "workqueue_wakes", "announcements go before the wake", flag_stands=False),
    mutation(
        "queue-due-relaxed", "workqueue_wakes", "bits, flags: loaded relaxed", sleepers_loaded_seq_cst=False, cpu=C11
    ),
    mutation("queue-wake-shared", "workqueue_wakes", "two count one wake", announcement_counts_once=False),
    mutation("queue-free-release", "workqueue_full", "a slot is freed by release only", free="release"),
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
    mutation("queue-turn-unnotified", "workqueue_notify", "its end tells nobody", turn_end_notifies=False),
    mutation("queue-dead-turn", "workqueue_turns", "the turn of a dead one stays", dead_turns_end=False),
]
TELLING = [
    mutation("queue-survey-before", "workqueue_notify", "looked at before only", ready_scans="before"),
    mutation("queue-survey-after", "workqueue_notify", "looked at after only", ready_scans="after"),
    mutation("queue-survey-fence", "workqueue_notify", "no fence: count, words", scan_ready_fence=RELAXED, cpu=C11),
    mutation("queue-empty-fence", "workqueue_notify", "words, count: acquire only", empty_fence=ACQUIRE, cpu=C11),
    mutation(
        "queue-notify-early", "workqueue_notify", "who is to be told: before only", notify_request_loaded_last=False
    ),
    mutation(
        "queue-survey-fill-count", "workqueue_tie", "fill_count not compared", ready_scan_compares_fill_count=False
    ),
    mutation("queue-back-silent", "workqueue_notify", "what comes back tells as a send", requeue_notifies=False),
    mutation("queue-leaver-silent", "workqueue_notify", "a waiter that leaves tells nobody", leaver_notifies=False),
    mutation("queue-taker-silent", "workqueue_notify", "one that got one neither", taker_notifies=False),
    mutation("queue-no-debts", "workqueue_notify", "debts of the dead are not known", notify_debts=False),
    mutation("queue-dead-silent", "workqueue_notify", "a dead waiter's bit tells nobody", recovery_notifies=False),
]
MUTATIONS = {each.name: each for each in SENDING + RECEIVING + REPAIRING + SLEEPING + FAIRNESS + TELLING}

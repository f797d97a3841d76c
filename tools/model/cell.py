"""Records (msgq/impl/records/): elements that many read and write, each with a word that says whose it is.

| word | says | who writes |
|---|---|---|
| `version[e]` | times that element e was written; row and generation of who writes it | writers; joiners |
| `part[e][copy][i]` | a part of the value that was written `copy` (modulo copies) times | who has the element |
| `generation[row]`, `uid[row]` | the owner of a row | joiners, under the file's lock |
| `owner`, `key_owner[k]` | who alone writes an exclusive vector, or a key's value | that one; claimers, joiners |
| `key_state[k]`, `key_name[k]` | a name, for ever | who declares it, under the file's lock |
| `eventcount` | as in eventcount.py: of all who wait for changes | sleepers, writers |

Readers store nothing. A writer is killed, or stopped for ever, between any two steps:

| after | is left | who goes on |
|---|---|---|
| the lock of an element, or some of its bytes | (n, dead); n can be read | its next writer, or a joiner |
| the version, before the wake | sleepers | the next wake; their own look |
| some bytes, of an exclusive element | n, which can be read | the next owner |
| the row's lock, before its generation | a row of the dead one as before | the next joiner |
| the row, before the owner's word | a dead one's row | the next joiner |
| a name, before its state | a free key | the next who declares one |
| the state, before the key's owner | a key of nobody | the next who declares it |
| the owner's word, before the row, in leaving | a dead one's row | the next joiner |

One that is stopped with an element keeps it: others give up after a while, and have told of what they wrote before.
One that is stopped with the file's lock lets nobody join. One to three elements, two or four copies of
two parts each.

cell_shared.py has the words and what really happened, cell_reader.py and cell_writer.py the protocol, and
cell_scenario.py the participants and the checks at the end.
"""

from random import Random

from .cell_scenario import Cue, RecordModel
from .cell_shared import Rules, version
from .memory import RELAXED
from .ops import X86
from .protocol import ProtocolModels, mutations_of
from .task import Op

PROTOCOL = Rules()


def cell(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """Two or three writers of one or two elements, killed or stopped anywhere, and two readers."""
    model = RecordModel(rng, rules, traced, length=1 + int(rng.random() * 2), rows=3)
    model.ends = 40
    for number in range(2 + model.below(2)):
        model.writer(f"writer {number}", 2 + model.below(3), reads=True)
    for number in range(2):
        model.reader(f"reader {number}")
    return model


def cell_lapped(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """One element that two writers write again and again, and nobody dies."""
    model = RecordModel(rng, rules, traced, length=1, rows=2)
    for number in range(1 + model.below(2)):
        model.writer(f"writer {number}", 4 + model.below(4), reads=True)
    for number in range(2):
        model.reader(f"reader {number}")
    return model


def cell_rows(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """A writer dies with an element, and those who come take its row, while another one asks whether it lives."""
    model = RecordModel(rng, rules, traced, length=1, rows=2)
    model.writer("short-lived", 1, dies_writing=True)
    model.ends, model.stops = 40 if model.chance(0.3) else 0, False

    def takes(op: Op) -> bool:
        return bool(op[0].startswith("cas") and op[1] == version(0))

    def another_has_it() -> bool:
        newcomers = model.schedule.tasks[3:-1]
        return model.shared.holders.get(0) in newcomers or all(task.finished for task in newcomers)

    cue = Cue(takes, another_has_it) if model.chance(0.2) else None
    model.writer("writer", 2 + model.below(3), cue=cue)
    for number in range(1 + model.below(2)):
        model.writer(f"late writer {number}", 1 + model.below(2), late=True)
    model.reader("reader")
    return model


def cell_threads(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """Two threads of a handle, which die together, beside another handle."""
    kind = ("shared", "exclusive")[int(rng.random() * 2)]
    model = RecordModel(rng, rules, traced, length=1 + int(rng.random() * 2), rows=2, kind=kind)
    model.ends, model.stops = 40, False
    model.writer("writer", 2 + model.below(2))
    model.thread("its thread", 0, 2 + model.below(2))
    model.ends = 0
    model.writer("other", 2 + model.below(2), late=kind == "exclusive")
    model.reader("reader")
    return model


def cell_exclusive(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """One writer at a time, killed or stopped or gone, and others that want to be the next."""
    model = RecordModel(rng, rules, traced, length=1 + int(rng.random() * 2), rows=2, kind="exclusive")
    model.ends = 40 if model.chance(0.7) else 0
    model.writer("writer", 2 + model.below(3))
    for number in range(2):
        model.writer(f"late writer {number}", 1 + model.below(3), late=True)
    for number in range(1 + model.below(2)):
        model.reader(f"reader {number}")
    return model


def cell_snapshot(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """One or two writers that write all elements in one call or some, and readers that read all at once."""
    kind = ("shared", "exclusive")[int(rng.random() * 2)]
    model = RecordModel(rng, rules, traced, length=2 + int(rng.random() * 2), rows=2, kind=kind)
    model.ends = 60 if model.chance(0.3) else 0
    for number in range(1 if kind == "exclusive" else 1 + model.below(2)):
        model.writer(f"writer {number}", 2 + model.below(2), all=model.chance(0.5))
    for number in range(1 + model.below(2)):
        model.reader(f"reader {number}", snapshots=True)
    return model


def cell_sleep(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """Two or three writers, killed or stopped, and two readers that sleep."""
    model = RecordModel(rng, rules, traced, length=1 + int(rng.random() * 2), rows=3)
    model.ends = 40 if model.chance(0.5) else 0
    for number in range(2 + model.below(2)):
        model.writer(f"writer {number}", 1 + model.below(2))
    for number in range(2):
        model.sleeper(f"sleeper {number}")
    return model


def cell_sleep_exclusive(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """The same of an exclusive vector."""
    model = RecordModel(rng, rules, traced, length=1 + int(rng.random() * 2), rows=2, kind="exclusive")
    model.ends = 40 if model.chance(0.5) else 0
    model.writer("writer", 1 + model.below(2))
    model.writer("late writer", 1 + model.below(2), late=True)
    for number in range(2):
        model.sleeper(f"sleeper {number}")
    return model


def cell_board(rng: Random, rules: Rules, traced: bool) -> RecordModel:
    """Keys are declared, written, given up, and taken from the dead; some read, some sleep."""
    model = RecordModel(rng, rules, traced, length=2, rows=2, kind="board", names=2, copies=2)
    model.ends = 60
    for number in range(2):
        model.writer(f"writer {number}", 2 + model.below(2))
    for number in range(model.below(3)):
        model.writer(f"late writer {number}", 1 + model.below(2), late=True)
    model.reader("reader")
    if model.chance(0.5):
        model.sleeper("sleeper")
    return model


SCENARIOS = [cell, cell_lapped, cell_rows, cell_threads, cell_exclusive, cell_snapshot]
SCENARIOS += [cell_sleep, cell_sleep_exclusive, cell_board]

mutation = mutations_of(PROTOCOL)
BYTES = [
    mutation("cell-write-fence", "cell_lapped", "no fence: version, bytes", write_fence=RELAXED),
    mutation("cell-version-store", "cell_lapped", "a version is stored relaxed", publish="relaxed"),
    mutation("cell-version-load", "cell_lapped", "a version is loaded relaxed", version_load=RELAXED),
    mutation("cell-read-fence", "cell_lapped", "no fence: bytes, version", read_fence=RELAXED),
    mutation("cell-one-copy", "cell", "one copy", copies=1),
    mutation("cell-one-copy-waits", "cell", "one copy, and readers wait", copies=1, waits_for_writer=True),
    mutation("cell-two-further", "cell_lapped", "with two copies one further is accepted", copies=2, further=1),
    mutation("cell-four-further", "cell_lapped", "with four copies three further are", copies=4, further=1),
    mutation("cell-times-back", "cell_lapped", "a time may be before the last one", times_kept=False),
    mutation("cell-seen-second", "cell_lapped", "the second look is remembered", copies=4, seen_by_second_look=True),
]
LOCKS = [
    mutation("cell-no-asking", "cell", "an element is taken without asking", holder_checked=False),
    mutation("cell-no-stealing", "cell", "an element is not taken from the dead", steals=False),
    mutation("cell-no-generation", "cell_rows", "words name a row alone", generation_named=False),
    mutation("cell-not-given-back", "cell_rows", "a row is handed on as it is", references_cleared=False),
    mutation("cell-lock-load", "cell_rows", "a version is loaded relaxed, then the row", lock_load=RELAXED),
    mutation("cell-lock-store", "cell", "an element is locked by a store", locks_by_exchange=False),
    mutation("cell-not-loaded-again", "cell", "it is exchanged again as it was", loads_again=False),
]
EXCLUSIVE = [
    mutation("cell-own-write-fence", "cell_exclusive", "exclusive: no fence", write_fence=RELAXED),
    mutation("cell-own-version", "cell_exclusive", "exclusive: stored relaxed", exclusive_publish=RELAXED),
    mutation("cell-own-threads", "cell_threads", "exclusive: two threads at once", threads_locked=False),
    mutation("cell-owner-lives", "cell_exclusive", "a vector is taken from the living", liveness_checked=False),
    mutation(
        "cell-owner-late",
        "cell_exclusive",
        "the row is left first, then its owner's word by a store",
        owner_first=False,
        owner_by_exchange=False,
    ),
    mutation("cell-key-lives", "cell_board", "a key is taken from the living", liveness_checked=False),
    mutation("cell-key-count", "cell_board", "an old count is used", count_forgotten=False),
    mutation("cell-key-not-given-back", "cell_board", "a row's keys stay", references_cleared=False),
    mutation("cell-key-store", "cell_board", "a key's state is stored relaxed", key_store=RELAXED),
    mutation("cell-key-load", "cell_board", "a key's state is loaded relaxed", key_load=RELAXED),
    mutation("cell-key-first", "cell_board", "a key's state, then its name", name_first=False),
]
SNAPSHOT = [
    mutation("cell-snapshot-once", "cell_snapshot", "versions are not compared", snapshot_looks=0),
    mutation("cell-snapshot-twice", "cell_snapshot", "they are, but once", snapshot_looks=1),
    mutation("cell-snapshot-some", "cell_snapshot", "not all are compared again", snapshot_compares_all=False),
]
SLEEPING = [
    mutation("cell-sleep-release", "cell_sleep", "a version is stored by release", publish="release", cpu=X86),
    mutation("cell-sleep-fence", "cell_sleep", "no fence: eventcount, versions", sleeper_fence=RELAXED),
    mutation("cell-sleep-exclusive", "cell_sleep_exclusive", "no fence: version, eventcount", exclusive_fence=RELAXED),
    mutation("cell-sleep-first", "cell_sleep", "eventcount, then the version", eventcount_last=False),
    mutation("cell-sleep-no-look", "cell_sleep", "nobody looks before the sleep", rechecks=False),
    mutation("cell-sleep-clear-first", "cell_sleep", "the flag goes before the wake", flag_stands=False),
    mutation("cell-late-silent", "cell_sleep", "who gives up tells nobody", notifies_when_late=False),
    mutation("cell-wait-silent", "cell_sleep", "who waits has not told", notifies_before_wait=False),
]
RECORDS = ProtocolModels("records", PROTOCOL, SCENARIOS, BYTES + LOCKS + EXCLUSIVE + SNAPSHOT + SLEEPING)

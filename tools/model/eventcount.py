"""Eventcount among several publishers (msgq/impl/base/eventcount.h, the functions that end in `_mp`).

Each publisher increments its own word, and sleepers follow all of these words. A publisher may be killed. To others, a
killed publisher equals a publisher that is stopped forever. Sleepers may miss the message of such a publisher, because
no wake follows. Sleepers must not miss a message whose publisher returned from its call.
"""

from dataclasses import dataclass
from functools import partial
from operator import eq
from random import Random

from .addresses import EVENTCOUNT
from .machine import Machine
from .memory import ACQUIRE, RELEASE, SEQ_CST, Order
from .ops import cas, fence, futex_wait, futex_wake, load, load_strong, load_x86, rmw, rmw_x86, store
from .oracle import Violation
from .protocol import Model, ProtocolModels, mutations_of
from .task import Steps, Task

#: Number of wakes; whether a thread may sleep; whether a wake runs, without a later announcement.
Word = tuple[int, bool, bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """The decisions of the protocol."""

    publishes_by_exchange: bool = True  # else: by a release store
    announcement_shows: bool = True  # the announcement shows to the wake that is under way; else: only the flag is set
    sleeper_fence: Order = SEQ_CST  # EDGE sleep: the flag is set, then the publishers' words are loaded
    rechecks: bool = True
    wake_counts: bool = True  # counts before it wakes
    flag_stands: bool = True  # the flag stays until the wake is complete; else: it is cleared before the wake
    clears_what_it_left: bool = True  # clears only its own word; else: any word


PROTOCOL = Rules()


def word_of(publisher: int) -> str:
    """Messages that it published."""
    return f"published[{publisher}]"


def prepare_wait(word: Word, rules: Rules = PROTOCOL) -> Word:
    """Set the sleeper flag. A notify that already runs may not wake the new sleeper."""
    return (word[0], True, word[2] and not rules.announcement_shows)


def notify(location: str, rules: Rules = PROTOCOL) -> Steps[None]:
    """Wake all sleepers. The flag stays set until the wake is complete, because the caller may die before."""
    while True:
        old: Word = yield load(location)
        if not old[1]:
            return  # another thread has woken them
        waking: Word = (old[0] + rules.wake_counts, True, True)
        if (yield cas(location, old, waking)) == old:
            break
    yield futex_wake()
    if rules.clears_what_it_left:
        yield cas(location, waking, (waking[0], False, False))
    else:
        yield rmw(location, lambda word: (word[0], False, False))


class EventcountModel(Model):
    """Some publishers and two sleepers, on one kind of CPU."""

    def __init__(self, rng: Random, rules: Rules, traced: bool, *, x86: bool) -> None:
        self.rules, self.x86 = rules, x86
        count = 2 + int(rng.random() * 2)
        self.words = [word_of(publisher) for publisher in range(count)]
        self.notified = [0] * count  # messages whose publisher has returned from its call
        self.cursors: dict[Task, list[int]] = {}
        start: Word = (0, False, False)
        super().__init__(rng, Machine({**dict.fromkeys(self.words, 0), EVENTCOUNT: start}, rng), traced)
        for publisher in range(count):
            stopped_within = 20 if self.below(2) else 0
            task = self.schedule.spawn(f"publisher {publisher}", self.publish(publisher), stopped_within)
            task.is_writer = True
        for sleeper in range(2):
            cursor = [0] * count
            self.cursors[self.schedule.spawn(f"sleeper {sleeper}", self.follow(cursor))] = cursor

    # ---- publishers ----

    def publish(self, publisher: int) -> Steps[None]:
        """A few messages, one after the other."""
        for number in range(1, 2 + self.below(3)):
            yield from self.count_up(self.words[publisher], number)
            # EDGE sleep: the message is published, then eventcount is loaded.
            word: Word = yield (load_x86 if self.x86 else load_strong)(EVENTCOUNT)
            if word[1]:
                yield from notify(EVENTCOUNT, self.rules) if self.rules.flag_stands else self.wake_alone()
            self.notified[publisher] = number

    def count_up(self, word: str, number: int) -> Steps[None]:
        """Publish one."""
        if self.rules.publishes_by_exchange:
            yield (rmw_x86 if self.x86 else rmw)(word, lambda _: number)
        else:
            yield store(word, number, RELEASE)

    def wake_alone(self) -> Steps[None]:
        """As the ring does it, which has one publisher at a time."""
        yield rmw(EVENTCOUNT, lambda word: (word[0] + 1, False, False))
        yield futex_wake()

    # ---- sleepers ----

    def follow(self, cursor: list[int]) -> Steps[None]:
        """Read all messages, and sleep."""
        prepare = partial(prepare_wait, rules=self.rules)
        while True:
            while (yield from self.take(cursor)):
                pass
            expected: Word = prepare((yield rmw(EVENTCOUNT, prepare)))
            yield fence(self.rules.sleeper_fence)
            if not self.rules.rechecks or not (yield from self.take(cursor)):
                yield futex_wait(EVENTCOUNT, partial(eq, expected))

    def take(self, cursor: list[int]) -> Steps[bool]:
        """Load the words of all publishers. Return False if no word is new."""
        before = cursor.copy()
        for publisher, word in enumerate(self.words):
            cursor[publisher] = yield load(word, ACQUIRE)
        return cursor != before

    # ---- the run ----

    def run(self) -> None:
        """As of the other models, with checks."""
        super().run()
        stopped = any(task.dead for task in self.schedule.tasks)
        for task, cursor in self.cursors.items():
            if any(seen < notified for seen, notified in zip(cursor, self.notified, strict=True)):
                text = f"{task.name} sleeps at {cursor}, and the publishers have gone on from {self.notified}"
                raise Violation("lost-wake" if stopped else "wake", text)


def eventcount(rng: Random, rules: Rules, traced: bool) -> EventcountModel:
    """Several publishers, some of which may stop for ever, and two sleepers, on AArch64."""
    return EventcountModel(rng, rules, traced, x86=False)


def eventcount_x86(rng: Random, rules: Rules, traced: bool) -> EventcountModel:
    """The same on x86, where a load may overtake a store before it."""
    return EventcountModel(rng, rules, traced, x86=True)


mutation = mutations_of(PROTOCOL)
ALL = [
    mutation("many-release", "eventcount_x86", "published by a release store", publishes_by_exchange=False),
    mutation("many-announce", "eventcount", "an announcement hides from a wake", announcement_shows=False),
    mutation("many-sleeper-fence", "eventcount", "no fence: eventcount, the words", sleeper_fence="relaxed"),
    mutation("many-no-look", "eventcount", "nobody looks again before the sleep", rechecks=False),
    mutation("many-count", "eventcount", "a wake is not counted", wake_counts=False),
    mutation("many-clear-first", "eventcount", "the flag is cleared before the wake", flag_stands=False),
    mutation("many-clear-all", "eventcount", "the flag is cleared, whose it may be", clears_what_it_left=False),
]
EVENTCOUNT_MODELS = ProtocolModels("eventcount", PROTOCOL, (eventcount, eventcount_x86), ALL)

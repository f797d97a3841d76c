"""Channels (msgq/impl/channel/index_ring.h and pool.h): many publishers, subscribers that copy, subscribers that view.

| word | states | who writes |
|---|---|---|
| `entry[i]` | (position, row, slot), later (position, withdrawn), later position + capacity | publishers |
| `tail` | all before it is published, and perhaps one more; 0: nobody knows the capacity | publishers |
| `pool_uid[row]` | the pool that entries of this row mean; 0: none yet | the publisher that takes the row |
| `pins[uid][slot]` | a bit for each subscriber's row: it views the slot | subscribers; the pool's publisher |
| `word[uid][slot][part]` | length and payload of a message | the pool's publisher |
| `eventcount`, `room[uid]` | as in eventcount.py: of all who wait for messages, of the publisher | sleepers, wakers |

Entries are withdrawn by their publisher, and by one who takes the row of a dead one. Bits are cleared by the pool's
publisher when their subscriber is dead, and by the next subscriber in that row. Rows change hands under a lock.

A slot is in one of four places, which only its publisher knows: `free`; `published`, in the ring or out of it; `limbo`,
out of the ring and pinned; or in the publisher's hand. A publisher is killed, or stopped for ever; a subscriber is
killed, and leaves its bits to whoever takes its row. The lock of a row is the kernel's.

channel_shared.py has the words and what really happened, channel_publisher.py and channel_subscriber.py the protocol.
"""

from random import Random
from typing import Any

from .channel_publisher import Publisher
from .channel_shared import Rules, SharedChannel
from .channel_subscriber import Copier, Subscriber, Viewer
from .memory import RELAXED
from .ops import pause, until
from .oracle import Violation
from .protocol import Scenario, mutations_of
from .scheduler import Schedule
from .task import Steps, Task

PROTOCOL = Rules()


class ChannelModel:
    """One schedule of one scenario, ready to run."""

    def __init__(
        self, rng: Random, rules: Rules, traced: bool, *, rows: int, viewers: int = 1, configured: bool = True
    ) -> None:
        self.rng, self.configured = rng, configured
        self.shared = SharedChannel(
            rng, rules, capacity=(2, 4)[self.below(2)], rows=rows, viewers=viewers, configured=configured
        )
        self.schedule = Schedule(rng, self.shared.kernel, traced)
        self.publishers: list[Publisher] = []
        self.sleepers: list[Subscriber] = []

    def below(self, limit: int) -> int:
        """One of 0 .. limit - 1."""
        return int(self.rng.random() * limit)

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.rng.random() < probability

    # ---- publishers ----

    def publish(
        self, row: int, slots: int, count: int, *, ends: int = 0, grows: bool = False, waits: bool = False
    ) -> None:
        """A publisher that is there from the beginning.

        `ends`: it may be killed or stopped within so many steps. `waits`: for a slot, when it has none.
        """
        publisher = Publisher(self.shared, f"publisher {row}")
        publisher.pool = self.shared.assign_pool(row, slots)
        self._start(publisher, self._publish(publisher, count, grows, waits), ends, may_stop=not grows)
        self.shared.rows[row].holder = publisher.task

    def publish_late(self, name: str, slots: int, count: int, *, ends: int = 0) -> None:
        """One that comes when a row can be had."""
        publisher = Publisher(self.shared, name)
        self._start(publisher, self._join_late(publisher, slots, count), ends, may_stop=False)

    def _start(self, publisher: Publisher, steps: Steps[None], ends: int, *, may_stop: bool) -> None:
        how = self.rng.random() if ends else 1.0
        if may_stop and how < 0.25:
            steps = stop_after(steps, 1 + self.below(ends))
        killed = ends if 0.25 <= how < 0.6 else 0
        publisher.task = self.schedule.spawn(publisher.name, steps, killed)
        publisher.task.is_writer = True
        self.publishers.append(publisher)

    def _publish(self, publisher: Publisher, count: int, grows: bool = False, waits: bool = False) -> Steps[None]:
        if not self.configured:
            yield from publisher.configure()
        growth = self.below(count) if grows else -1
        for number in range(count):
            if number == growth:
                yield from publisher.grow(1 + self.below(3), 1 + self.below(2))
            if self.chance(0.15):
                yield from publisher.give_up(1 + self.below(2))
            if not (yield from publisher.send(1 + self.below(2), waits=waits)):
                yield pause()
        yield from publisher.leave()

    def _join_late(self, publisher: Publisher, slots: int, count: int) -> Steps[None]:
        for _ in range(12):
            yield pause()
            if any(row.vacant for row in self.shared.rows) and (yield from publisher.join(slots)):
                yield from self._publish(publisher, count)
                return

    # ---- subscribers ----

    def options(self) -> dict[str, Any]:
        """What a subscriber does when it was lapped."""
        return {"margin": self.below(2), "newest": self.chance(0.3)}

    def copy(self, name: str, *, late: bool = False) -> None:
        """A subscriber that copies, and polls."""
        reader = Copier(self.shared, name, **self.options())
        reader.task = self.schedule.spawn(name, self._follow(reader, self.below(8) if late else 0))

    def view(self, name: str, *, most: int, killed: int = 0, late: bool = False) -> None:
        """A subscriber that takes views, and polls. `late`: it waits for the row of another one."""
        reader = Viewer(self.shared, name, most=most, **self.options())
        reader.task = self.schedule.spawn(name, self._view(reader, late), killed)
        self.shared.subscribers[name] = reader.task

    def _follow(self, reader: Subscriber, pauses: int = 0) -> Steps[None]:
        for _ in range(pauses):
            yield pause()
        if pauses:
            yield from reader.join(self.below(4))
        while True:
            over = self.schedule.writers_finished()
            if (yield from reader.receive()):
                continue
            if over:
                reader.check_end()
                return
            yield pause()

    def _view(self, reader: Viewer, late: bool) -> Steps[None]:
        rows = self.shared.viewers
        if late:
            yield until(lambda: all(row.holder for row in rows) and any(row.vacant for row in rows))
            yield from reader.join(self.below(4))
        if not (yield from reader.enter()):
            return
        while True:
            over = self.schedule.writers_finished()
            received = yield from reader.receive()
            if reader.views and self.chance(0.5):
                yield from reader.read_view(reader.views[self.below(len(reader.views))])
            if reader.views and self.chance(0.3):
                yield from reader.let_go()
            if over and not received:
                reader.check_end()
                break
            if not received:
                yield pause()
        yield from reader.leave()

    def add_sleeper(self, name: str) -> None:
        """A subscriber that copies, and sleeps."""
        reader = Copier(self.shared, name, **self.options())
        reader.task = self.schedule.spawn(name, self._follow_asleep(reader))
        self.sleepers.append(reader)

    def _follow_asleep(self, reader: Subscriber) -> Steps[None]:
        while True:
            while (yield from reader.receive()):
                pass
            yield from reader.sleep()

    # ---- the run ----

    def run(self) -> None:
        """Raises Violation."""
        self.schedule.run()
        whole = [each for each in self.publishers if each.task.closed]
        for reader in self.sleepers:
            if reader.cursor < self.shared.notified:
                text = (
                    f"{reader.name} sleeps at {reader.cursor}, and publishers have gone on from {self.shared.notified}"
                )
                raise Violation("wake" if len(whole) == len(self.publishers) else "lost-wake", text)
        self.shared.kernel.publish_all_writes(self.schedule.tasks)
        for publisher in whole:
            self.audit(publisher)

    def audit(self, publisher: Publisher) -> None:
        """No subscriber is left, so it can have all its slots."""
        for _ in range(publisher.pool.slots):
            if self.run_alone(publisher.task, publisher.take_slot()) is None:
                raise Violation("refused", f"{publisher.name} lacks a slot, and nobody is left who could hold it")

    def run_alone(self, task: Task, steps: Steps[Any]) -> Any:
        """Run these steps while nobody else takes one; returns their result."""
        result = None
        while True:
            try:
                op = steps.send(result)
            except StopIteration as end:
                return end.value
            result = getattr(self.shared.kernel, op[0])(task, *op[1:])


def stop_after(steps: Steps[None], count: int) -> Steps[None]:
    """The first so many of them: to the others it looks alive for ever."""
    op = next(steps)
    for _ in range(count):
        try:
            op = steps.send((yield op))
        except StopIteration:
            return


def channel(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """Two or three publishers with few slots, killed or stopped; one subscriber copies, one or two view."""
    model = ChannelModel(rng, rules, traced, rows=3, viewers=2)
    for row in range(2 + model.below(2)):
        model.publish(row, 1 + model.below(4), 2 + model.below(5), ends=60)
    model.copy("copier", late=model.chance(0.3))
    for number in range(1 + model.below(2)):
        model.view(f"viewer {number}", most=1 + model.below(2), killed=60 if model.chance(0.3) else 0)
    return model


def channel_copy(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """Publishers with a slot or two, which are soon evicted by others, and two subscribers that copy."""
    model = ChannelModel(rng, rules, traced, rows=3, viewers=0)
    for row in range(2 + model.below(2)):
        model.publish(row, 1 + model.below(2), 3 + model.below(6))
    for number in range(2):
        model.copy(f"copier {number}", late=model.chance(0.3))
    return model


def channel_rows(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """Publishers come and grow, and take the rows of dead ones and of pools that were left."""
    model = ChannelModel(rng, rules, traced, rows=2 + int(rng.random() * 2))
    for row in range(2):
        model.publish(row, 1 + model.below(3), 2 + model.below(4), ends=60, grows=model.chance(0.5))
    for number in range(1 + model.below(2)):
        model.publish_late(f"newcomer {number}", 1 + model.below(3), 2 + model.below(3), ends=100)
    model.copy("copier", late=model.chance(0.3))
    model.view("viewer", most=1 + model.below(2))
    return model


def channel_bits(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """Subscribers that view are killed or leave, and others take their rows."""
    model = ChannelModel(rng, rules, traced, rows=2, viewers=1)
    for row in range(1 + model.below(2)):
        model.publish(row, 1 + model.below(3), 4 + model.below(5))
    model.view("viewer", most=1 + model.below(2), killed=60)
    for number in range(2):
        model.view(f"successor {number}", most=1 + model.below(2), killed=60 if model.chance(0.5) else 0, late=True)
    return model


def channel_full(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """A publisher that waits for slots, and two subscribers that hold them."""
    model = ChannelModel(rng, rules, traced, rows=1, viewers=2)
    model.publish(0, 1 + model.below(2), 3 + model.below(5), waits=True)
    for number in range(2):
        model.view(f"viewer {number}", most=1 + model.below(2))
    return model


def channel_sleep(rng: Random, rules: Rules, traced: bool) -> ChannelModel:
    """Two or three publishers, killed or stopped, and two subscribers that sleep."""
    model = ChannelModel(rng, rules, traced, rows=3, configured=rng.random() < 0.7)
    for row in range(2 + model.below(2)):
        model.publish(row, 1 + model.below(3), 1 + model.below(3), ends=40)
    for number in range(2):
        model.add_sleeper(f"sleeper {number}")
    return model


SCENARIOS: dict[str, Scenario] = {
    "channel": channel,
    "channel_copy": channel_copy,
    "channel_rows": channel_rows,
    "channel_bits": channel_bits,
    "channel_full": channel_full,
    "channel_sleep": channel_sleep,
}

mutation = mutations_of(PROTOCOL)
ALL = [
    mutation("channel-slot-fence", "channel_copy", "no fence: entry, bytes", slot_fence=RELAXED),
    mutation("channel-copy-fence", "channel_copy", "no fence: copy, entry", copy_fence=RELAXED),
    mutation("channel-entry-relaxed", "channel_copy", "an entry is loaded relaxed", entry_load=RELAXED),
    mutation("channel-pin-seq-cst", "channel", "pin, entry: acquire and release only", pin_seq_cst=False),
    mutation("channel-pins-seq-cst", "channel", "pins are loaded acquire", pins_load_seq_cst=False),
    mutation("channel-no-look-after-copy", "channel_copy", "no look after the copy", checks_after_copy=False),
    mutation("channel-no-look-after-pin", "channel", "no look after the pin", checks_after_pin=False),
    mutation("channel-tail-store", "channel_copy", "the tail is stored", tail_by_exchange=False),
    mutation("channel-no-help", "channel", "nobody moves another's tail", helps=False),
    mutation("channel-no-pins", "channel", "pins are not looked at", pins_checked=False),
    mutation("channel-limbo-last", "channel", "messages are withdrawn first, then limbo", limbo_first=False),
    mutation("channel-unpin", "channel", "a bit is cleared relaxed", unpin="relaxed"),
    mutation("channel-unpin-release", "channel_full", "bit, publisher's eventcount: release only", unpin="release"),
    mutation("channel-failed-pin", "channel_full", "a pin that failed wakes nobody", failed_pin_wakes=False),
    mutation("channel-dead-bits", "channel", "bits of the dead stay", dead_bits_cleared=False),
    mutation("channel-bit-uncleaned", "channel_bits", "a bit is handed on as it is", bit_cleaned=False),
    mutation("channel-bit-late", "channel_bits", "a row is taken, then its bit cleaned", bit_cleaned_first=False),
    mutation("channel-life-kept", "channel_bits", "who was dead once is dead", answers_end=False),
    mutation("channel-life-first", "channel_bits", "who is dead is asked first", asks_after_pins=False),
    mutation("channel-row-referred", "channel_rows", "a row is retaken as it is", row_unreferenced=False),
    mutation("channel-row-early", "channel_rows", "a row is left before its loans are", row_kept=False),
    mutation("channel-row-life", "channel_rows", "entries first, then life", liveness_before_entries=False),
    mutation("channel-uid", "channel_rows", "pool uids are not compared", uid_compared=False),
    mutation("channel-no-look-before-sleep", "channel_sleep", "nobody looks before the sleep", rechecks=False),
]
MUTATIONS = {each.name: each for each in ALL}

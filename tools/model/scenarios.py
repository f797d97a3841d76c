"""Who meets whom. Each function sets up one random case; the properties are those of truth.PROPERTIES."""

from collections.abc import Callable
from random import Random

from . import addresses as at
from .leases import Frames
from .ops import preempt, until
from .protocol import Scenario
from .rules import Rules
from .stock import StockPublisher, StockSubscriber
from .subscriber import Subscriber
from .task import Op, Steps
from .topic import Geometry, intact
from .world import World, when


def small_ring(rng: Random) -> Geometry:
    """12 to 20 words, so that a few messages make a lap."""
    size = 12 + int(rng.random() * 9)
    return Geometry(size, chunk=1 + int(rng.random() * (size // 3)))


def ours(rng: Random, rules: Rules, traced: bool) -> World:
    """Our publisher, which may die, and three of our subscribers; one of them joins late."""
    world = World(rng, rules, traced, small_ring(rng), slots=("slot",))
    most, abandons = 1 + 2 * world.below(2), 0.5 * world.below(2)
    life = world.first(world.office("A"), 4 + world.below(5), most=most, abandons=abandons)
    world.publish("A", life, killed_within=150 if world.chance(0.3) else 0)
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    world.join_late(Subscriber(world.topic, "late"), pauses=10)
    return world


def usage(rng: Random, rules: Rules, traced: bool) -> World:
    """The publisher waits until the limit of its next message spares all cursors: then nobody may be lapped."""
    world = World(rng, rules, traced, small_ring(rng), slots=("slot",))
    world.topic.lossless = True
    readers = [Subscriber(world.topic, "slot", slot=0), Subscriber(world.topic, "no slot")]
    publisher = world.office("A").publisher

    def careful_send(size: int) -> Steps[None]:
        yield until(lambda: all(intact(publisher.grant(1 + size), reader.cursor) for reader in readers))
        yield from publisher.send([size])

    def careful() -> Steps[None]:
        for _ in range(6 + world.below(6)):
            yield from careful_send(world.sizes()[0])

    world.publish("A", careful())
    for reader in readers:
        world.subscribe(reader)
    return world


# ---- with stock programs ----


def stock_publisher(rng: Random, rules: Rules, traced: bool) -> World:
    """A stock publisher, which may die; our subscribers validate by position and margin."""
    world = World(rng, rules, traced, small_ring(rng), slots=("slot",), publisher="S")
    publish_stock(world)
    make = StockSubscriber if rules.trust_flag else Subscriber
    world.subscribe(make(world.topic, "slot", 0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    return world


def stock_publisher_alone(rng: Random, rules: Rules, traced: bool) -> World:
    """The same without slots: nothing orders its new cycle before what it writes there, on AArch64."""
    world = World(rng, rules, traced, small_ring(rng), publisher="S")
    publish_stock(world)
    reader = Subscriber(world.topic, "no slot")
    world.schedule.spawn("no slot", when(lambda: lap_is_nearly_over(world), world.follow(reader)))
    return world


def publish_stock(world: World) -> None:
    """A stock publisher that is in office at the beginning."""
    stock = StockPublisher(world.topic, "S", world.rng)
    steps = world.stock_sends(stock, 5 + world.below(6))
    world.publish("S", steps, killed_within=100 if world.chance(0.2) else 0)


def lap_is_nearly_over(world: World) -> bool:
    """Or nothing more will come."""
    cycle, offset = world.topic.truth.position
    geometry = world.topic.geometry
    return cycle > 0 or offset + geometry.need_max >= geometry.lap_end or world.schedule.writers_finished()


def stock_subscriber(rng: Random, rules: Rules, traced: bool) -> World:
    """Our publishers, the first of which may die, and a stock subscriber, which trusts its flag."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B"), slots=("stock",))
    world.topic.stock_slots = (0,)
    world.palette = [max(1, size) for size in world.palette]  # it aborts on empty messages
    killed = world.chance(0.3)
    life = world.first(world.office("A"), 6 + world.below(4), close=killed)
    world.publish("A", life, killed_within=100 if killed else 0)
    if killed:
        world.publish("B", world.after("A", world.next(world.office("B"), 4)))
    world.subscribe(StockSubscriber(world.topic, "stock", 0))
    return world


def stock_subscriber_large(rng: Random, rules: Rules, traced: bool) -> World:
    """The same with messages as large as can be: what it knows of write_pointer is soon a lap old."""
    world = World(rng, rules, traced, Geometry(12, chunk=1), slots=("stock",))
    world.topic.stock_slots = (0,)
    world.palette = [2, 3, 3]
    world.publish("A", world.first(world.office("A"), 4 + world.below(3), close=False))
    world.subscribe(StockSubscriber(world.topic, "stock", 0))
    return world


# ---- one publisher after another ----


def restart(rng: Random, rules: Rules, traced: bool) -> World:
    """Our publisher is closed or dies anywhere, a second and a third follow; the second may die anywhere, too."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B", "C"), slots=("slot",))
    life = world.first(world.office("A"), 5 + world.below(4), most=2)
    task = world.publish("A", life, killed_within=150 if world.chance(0.8) else 0)
    if world.chance(0.5):
        task.kill_op = ("load", at.WRITE_UID)  # with the payload in place
    life = world.after("A", world.next(world.office("B"), world.below(2)))
    world.publish("B", life, killed_within=60 if world.chance(0.5) else 0)
    world.publish("C", world.after("AB", world.next(world.office("C"), world.below(2))))
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    return world


def overlap(rng: Random, rules: Rules, traced: bool) -> World:
    """The second publisher starts while the first is alive, mostly in the middle of a send; it may lose patience."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B"), slots=("slot",))
    old = world.office("A")
    old.publisher.fences = world.chance(0.2)
    task = world.publish("A", world.first(old, 2 + world.below(3), most=3))
    task.registered = not old.publisher.fences
    begins, moment = world.below(60), (in_a_send, in_a_send, at_a_wrap, anywhere)[world.below(4)]

    def may_come() -> bool:
        return task.next_op is None or (world.machine.clock >= begins and moment(task.next_op))

    new = world.office("B", patience=1000 if world.chance(0.7) else 1 + world.below(3))
    world.publish("B", when(may_come, world.next(new, 1 + world.below(3))))
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.join_late(Subscriber(world.topic, "late"), pauses=10)
    return world


def newcomers(rng: Random, rules: Rules, traced: bool) -> World:
    """A publisher sends batch after batch and is never closed; a second one comes, which may lose patience or die, and
    a third one after it."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B", "C"), slots=("slot",))
    world.publish("A", world.first(world.office("A"), 3 + world.below(3), most=3, close=False))
    begins = world.below(60)
    patience = 1000 if world.chance(0.5) else 1 + world.below(3)
    life = when(lambda: world.machine.clock >= begins, world.next(world.office("B", patience), 2, most=3, close=False))
    world.publish("B", life, killed_within=30 if world.chance(0.5) else 0)
    second = world.publishers["B"]
    life = world.next(world.office("C"), 1 + world.below(2), most=3, close=False)
    world.publish("C", when(lambda: second.finished or second.taken > 4, life))
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    return world


def in_a_send(op: Op) -> bool:
    """Or about to begin one."""
    return bool(op[0] == "store")


def at_a_wrap(op: Op) -> bool:
    """About to publish a new cycle, and then, replaced, nothing more."""
    return bool(op[0] == "store" and op[1] == at.WRITE_POINTER and op[2][1] == 0)


def anywhere(op: Op) -> bool:
    """Or between two sends."""
    return True


def stock_takeover(rng: Random, rules: Rules, traced: bool) -> World:
    """Ours is closed or dies, a stock publisher follows; subscribers have a backlog, one joins in between."""
    world = World(rng, rules, traced, small_ring(rng), slots=("slot",))
    life = world.first(world.office("A"), 2 + world.below(3))
    world.publish("A", life, killed_within=60 if world.chance(0.5) else 0)
    stock = StockPublisher(world.topic, "S", rng)
    world.publish("S", world.after("A", world.stock_takes_over(stock, 3 + world.below(4))))
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    world.join_late(Subscriber(world.topic, "late", slot=1), pauses=8)
    return world


def back_from_stock(rng: Random, rules: Rules, traced: bool) -> World:
    """Ours, then a stock publisher, which may die anywhere, ours again, which may die anywhere, and a last one."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B", "C"), slots=("slot",))
    world.publish("A", world.first(world.office("A"), 1 + world.below(3)))
    stock = StockPublisher(world.topic, "S", rng)
    life = world.after("A", world.stock_takes_over(stock, 2 + world.below(3)))
    world.publish("S", life, killed_within=30 if world.chance(0.3) else 0)
    life = world.after("AS", world.next(world.office("B"), 1 + world.below(2)))
    world.publish("B", life, killed_within=30 if world.chance(0.7) else 0)
    world.publish("C", world.after("ASB", world.next(world.office("C"), 1 + world.below(3))))
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    return world


def same_witness(rng: Random, rules: Rules, traced: bool) -> World:
    """Ours leaves a backlog; a stock publisher sends while it is copied; ours comes and goes before it is validated:
    write_uid is 0 again, as it was when the subscriber looked at it before."""
    world = World(rng, rules, traced, small_ring(rng), ours=("A", "B"))

    def reads(location: object) -> Callable[[], bool]:
        return lambda: world.machine.clock >= 400 or (task.next_op or ())[:2] == ("load", location)

    place = world.topic.data[world.below(8)]
    world.publish("A", world.first(world.office("A"), 2 + world.below(4)))
    life = world.stock_takes_over(StockPublisher(world.topic, "S", rng), 2 + world.below(4))
    world.publish("S", world.after("A", when(reads(place), life))).unbroken = True
    life = world.next(world.office("B"), world.below(2))
    world.publish("B", world.after("AS", when(reads(at.WRITE_UID), life))).unbroken = True
    task = world.subscribe(Subscriber(world.topic, "no slot"))
    return world


def replaced(rng: Random, rules: Rules, traced: bool) -> World:
    """A stock publisher starts and sends, all at once, just before ours (starting or not) looks at write_uid.

    The moments between such a look and what follows from it are left out: nothing of ours can help there, because a
    stock publisher neither announces itself nor waits.
    """
    world = World(rng, rules, traced, small_ring(rng), slots=("slot",), publisher=0)
    task = world.publish("A", world.next(world.office("A"), 2 + world.below(3)))
    stock = StockPublisher(world.topic, "S", rng)
    begins = world.below(60) if world.chance(0.5) else 0

    def may_come() -> bool:
        return task.finished or (world.machine.clock >= begins and looks_at_uid(task.next_op, rules))

    def unseen() -> Steps[None]:
        yield until(may_come)
        yield preempt(task)
        yield from world.stock_takes_over(stock, 3 + world.below(3))
        yield preempt(task)

    world.publish("S", unseen()).unbroken = True
    world.subscribe(Subscriber(world.topic, "slot", slot=0))
    world.subscribe(Subscriber(world.topic, "no slot"))
    return world


def looks_at_uid(op: Op | None, rules: Rules) -> bool:
    """Is it this that comes next, or the commit without it, where a mutation leaves it out?"""
    if op is None or op[0] not in ("load", "cas", "store"):
        return False
    return op[1] == at.WRITE_UID or (op[1] == at.WRITE_POINTER and not rules.uid_before_commit)


# ---- asleep; two messages fill the ring ----

TINY = Geometry(size=4, chunk=1)


def sleep(rng: Random, rules: Rules, traced: bool) -> World:
    """Two subscribers that sleep when there is nothing to read; one may die."""
    world = World(rng, rules, traced, TINY)
    world.publish("A", world.first(world.office("A"), 2 + world.below(5), close=False))
    world.sleeper(Subscriber(world.topic, "one"))
    world.sleeper(Subscriber(world.topic, "two"), killed_within=30 if world.chance(0.3) else 0)
    return world


def sleep_restart(rng: Random, rules: Rules, traced: bool) -> World:
    """The same, and the publisher dies anywhere, or is taken over alive; its successor wakes whom it left asleep."""
    world = World(rng, rules, traced, TINY, ours=("A", "B"))
    killed = world.chance(0.8)
    life = world.first(world.office("A"), 3, close=False)
    world.publish("A", life, killed_within=40 if killed else 0)
    life = world.next(world.office("B"), world.below(3), close=False)
    world.publish("B", world.after("A", life) if killed else life)
    world.sleeper(Subscriber(world.topic, "one"))
    world.sleeper(Subscriber(world.topic, "two"))
    return world


def sleep_stock(rng: Random, rules: Rules, traced: bool) -> World:
    """A stock publisher signals the helper thread of the sleepers' process, which wakes them."""
    world = World(rng, rules, traced, TINY, slots=("one", "two"), publisher="S")
    stock = StockPublisher(world.topic, "S", rng, signals=True)
    world.publish("S", world.stock_sends(stock, 2 + world.below(4)))
    world.sleeper(Subscriber(world.topic, "one", slot=0))
    world.sleeper(Subscriber(world.topic, "two", slot=1))
    world.schedule.spawn("helper", world.help_sleepers())
    return world


def doze(rng: Random, rules: Rules, traced: bool) -> World:
    """Our publisher signals a stock subscriber, which sleeps when there is nothing to read, if it may do so."""
    world = World(rng, rules, traced, small_ring(rng), slots=("stock",))
    world.palette = [max(1, size) for size in world.palette]
    world.topic.stock_slots = (0,)
    reader = StockSubscriber(world.topic, "stock", 0)
    world.topic.dozers[0] = lambda: reader.dozing and reader.cursor < world.topic.truth.position
    most, abandons = 1 + 2 * world.below(2), 0.5 * world.below(2)
    world.publish("A", world.first(world.office("A"), 5 + world.below(5), most=most, abandons=abandons, close=False))
    world.schedule.spawn("stock", reader.follow_asleep(world.machine))
    return world


# ---- frames ----


def frames(rng: Random, rules: Rules, traced: bool) -> Frames:
    """A server of frames and two clients that hold some; anybody may die."""
    return Frames(rng, rules, traced, rows=2, clients=2)


def frames_full(rng: Random, rules: Rules, traced: bool) -> Frames:
    """More clients than rows: a row is given to the next when its client left, or died."""
    return Frames(rng, rules, traced, rows=1, clients=3)


def frames_warm(rng: Random, rules: Rules, traced: bool) -> Frames:
    """More buffers than are held, so that the server may choose; rows change hands."""
    return Frames(rng, rules, traced, rows=2, clients=3, buffers=4)


def frames_spare(rng: Random, rules: Rules, traced: bool) -> Frames:
    """Clients hold all buffers, and the server adds spare ones."""
    return Frames(rng, rules, traced, rows=2, clients=3, buffers=4, spare=2)


def frames_stock(rng: Random, rules: Rules, traced: bool) -> Frames:
    """A stock client has the buffers, too."""
    return Frames(rng, rules, traced, rows=1, clients=1, buffers=4, stock=True)


ALL: list[Scenario] = [ours, usage]
ALL += [stock_publisher, stock_publisher_alone, stock_subscriber, stock_subscriber_large]
ALL += [restart, overlap, newcomers, stock_takeover, back_from_stock, same_witness, replaced]
ALL += [sleep, sleep_restart, sleep_stock, doze, frames, frames_full, frames_warm, frames_spare, frames_stock]
SCENARIOS = {scenario.__name__: scenario for scenario in ALL}

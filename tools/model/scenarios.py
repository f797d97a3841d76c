"""Who meets whom. Each function sets up one random case; the properties are those of oracle.PROPERTIES."""

from collections.abc import Callable
from random import Random

from . import addresses as at
from .mutations import MUTATIONS
from .ops import preempt, until
from .protocol import ProtocolModels
from .rules import PROTOCOL, Rules
from .stock import StockPublisher, StockSubscriber
from .subscriber import Subscriber
from .task import Op, Steps
from .topic import Geometry, intact
from .topic_model import TopicModel, when


def small_ring(rng: Random) -> Geometry:
    """12 to 20 words, so that a few messages make a lap."""
    size = 12 + int(rng.random() * 9)
    return Geometry(size, chunk=1 + int(rng.random() * (size // 3)))


def own_publisher(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Our publisher, which may die, and three of our subscribers; one of them joins late."""
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("slot",))
    most, abandons = 1 + 2 * model.below(2), 0.5 * model.below(2)
    run = model.first(model.new_publisher("A"), 4 + model.below(5), most=most, abandons=abandons)
    model.publish("A", run, killed_within=150 if model.chance(0.3) else 0)
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    model.join_late(Subscriber(model.topic, "late"), pauses=10)
    return model


def usage(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """The publisher waits until the limit of its next message passes no cursor, so no subscriber may be lapped."""
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("slot",))
    model.topic.lossless = True
    readers = [Subscriber(model.topic, "slot", slot=0), Subscriber(model.topic, "no slot")]
    publisher = model.new_publisher("A").publisher

    def careful_send(size: int) -> Steps[None]:
        yield until(lambda: all(intact(publisher.grant(1 + size), reader.cursor) for reader in readers))
        yield from publisher.send([size])

    def careful() -> Steps[None]:
        for _ in range(6 + model.below(6)):
            yield from careful_send(model.sizes()[0])

    model.publish("A", careful())
    for reader in readers:
        model.subscribe(reader)
    return model


# ---- with stock programs ----


def stock_publisher(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A stock publisher, which may die; our subscribers validate by position and margin."""
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("slot",), publisher="S")
    publish_stock(model)
    make = StockSubscriber if rules.trust_flag else Subscriber
    model.subscribe(make(model.topic, "slot", 0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    return model


def stock_publisher_alone(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """The same without slots: nothing orders its new cycle before what it writes there, on AArch64."""
    model = TopicModel(rng, rules, traced, small_ring(rng), publisher="S")
    publish_stock(model)
    reader = Subscriber(model.topic, "no slot")
    model.schedule.spawn("no slot", when(lambda: lap_is_nearly_over(model), model.follow(reader)))
    return model


def publish_stock(model: TopicModel) -> None:
    """A stock publisher that is in office at the beginning."""
    stock = StockPublisher(model.topic, "S", model.rng)
    steps = model.stock_sends(stock, 5 + model.below(6))
    model.publish("S", steps, killed_within=100 if model.chance(0.2) else 0)


def lap_is_nearly_over(model: TopicModel) -> bool:
    """Or nothing more will come."""
    cycle, offset = model.topic.oracle.position
    geometry = model.topic.geometry
    return cycle > 0 or offset + geometry.need_max >= geometry.lap_end or model.schedule.writers_finished()


def stock_subscriber(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Our publishers, the first of which may die, and a stock subscriber, which trusts its flag."""
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B"), slots=("stock",))
    model.topic.stock_slots = (0,)
    model.palette = [max(1, size) for size in model.palette]  # it aborts on empty messages
    killed = model.chance(0.3)
    run = model.first(model.new_publisher("A"), 6 + model.below(4), close=killed)
    model.publish("A", run, killed_within=100 if killed else 0)
    if killed:
        model.publish("B", model.after("A", model.next(model.new_publisher("B"), 4)))
    model.subscribe(StockSubscriber(model.topic, "stock", 0))
    return model


def stock_subscriber_large(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """The same with the largest messages, so that the loaded write_pointer is soon one lap old."""
    model = TopicModel(rng, rules, traced, Geometry(12, chunk=1), slots=("stock",))
    model.topic.stock_slots = (0,)
    model.palette = [2, 3, 3]
    model.publish("A", model.first(model.new_publisher("A"), 4 + model.below(3), close=False))
    model.subscribe(StockSubscriber(model.topic, "stock", 0))
    return model


# ---- one publisher after another ----


def restart(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Our publisher is closed or dies anywhere, a second and a third follow; the second may die anywhere, too."""
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B", "C"), slots=("slot",))
    run = model.first(model.new_publisher("A"), 5 + model.below(4), most=2)
    task = model.publish("A", run, killed_within=150 if model.chance(0.8) else 0)
    if model.chance(0.5):
        task.kill_op = ("load", at.WRITE_UID)  # with the payload in place
    run = model.after("A", model.next(model.new_publisher("B"), model.below(2)))
    model.publish("B", run, killed_within=60 if model.chance(0.5) else 0)
    model.publish("C", model.after("AB", model.next(model.new_publisher("C"), model.below(2))))
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    return model


def overlap(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """The second publisher starts while the first is alive, mostly in the middle of a send; it may lose patience."""
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B"), slots=("slot",))
    old = model.new_publisher("A")
    old.publisher.fences = model.chance(0.2)
    task = model.publish("A", model.first(old, 2 + model.below(3), most=3))
    task.registered = not old.publisher.fences
    begins, moment = model.below(60), (in_a_send, in_a_send, at_a_wrap, anywhere)[model.below(4)]

    def may_come() -> bool:
        return task.next_op is None or (model.machine.clock >= begins and moment(task.next_op))

    new = model.new_publisher("B", patience=1000 if model.chance(0.7) else 1 + model.below(3))
    model.publish("B", when(may_come, model.next(new, 1 + model.below(3))))
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.join_late(Subscriber(model.topic, "late"), pauses=10)
    return model


def newcomers(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A publisher sends batch after batch and is never closed; a second one comes, which may lose patience or die, and
    a third one after it."""
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B", "C"), slots=("slot",))
    model.publish("A", model.first(model.new_publisher("A"), 3 + model.below(3), most=3, close=False))
    begins = model.below(60)
    patience = 1000 if model.chance(0.5) else 1 + model.below(3)
    run = when(
        lambda: model.machine.clock >= begins, model.next(model.new_publisher("B", patience), 2, most=3, close=False)
    )
    model.publish("B", run, killed_within=30 if model.chance(0.5) else 0)
    second = model.publishers["B"]
    run = model.next(model.new_publisher("C"), 1 + model.below(2), most=3, close=False)
    model.publish("C", when(lambda: second.finished or second.taken > 4, run))
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    return model


def in_a_send(op: Op) -> bool:
    """Or about to begin one."""
    return bool(op[0] == "store")


def at_a_wrap(op: Op) -> bool:
    """About to publish a new cycle, and then, replaced, nothing more."""
    return bool(op[0] == "store" and op[1] == at.WRITE_POINTER and op[2][1] == 0)


def anywhere(op: Op) -> bool:
    """Or between two sends."""
    return True


def stock_takeover(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A msgq publisher closes or dies, and a stock publisher follows. Subscribers have a backlog, one joins later."""
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("slot",))
    run = model.first(model.new_publisher("A"), 2 + model.below(3))
    model.publish("A", run, killed_within=60 if model.chance(0.5) else 0)
    stock = StockPublisher(model.topic, "S", rng)
    model.publish("S", model.after("A", model.stock_takes_over(stock, 3 + model.below(4))))
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    model.join_late(Subscriber(model.topic, "late", slot=1), pauses=8)
    return model


def back_from_stock(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Publishers: msgq, stock, msgq, msgq. The second and the third one may die at each step."""
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B", "C"), slots=("slot",))
    model.publish("A", model.first(model.new_publisher("A"), 1 + model.below(3)))
    stock = StockPublisher(model.topic, "S", rng)
    run = model.after("A", model.stock_takes_over(stock, 2 + model.below(3)))
    model.publish("S", run, killed_within=30 if model.chance(0.3) else 0)
    run = model.after("AS", model.next(model.new_publisher("B"), 1 + model.below(2)))
    model.publish("B", run, killed_within=30 if model.chance(0.7) else 0)
    model.publish("C", model.after("ASB", model.next(model.new_publisher("C"), 1 + model.below(3))))
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    return model


def same_sentinel(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A msgq publisher leaves a backlog. During the copy by a subscriber, a stock publisher sends, and a msgq publisher
    starts and closes. At the validation, write_uid is 0 again, as before the copy.
    """
    model = TopicModel(rng, rules, traced, small_ring(rng), own_uids=("A", "B"))

    def reads(location: object) -> Callable[[], bool]:
        return lambda: model.machine.clock >= 400 or (task.next_op or ())[:2] == ("load", location)

    place = model.topic.data[model.below(8)]
    model.publish("A", model.first(model.new_publisher("A"), 2 + model.below(4)))
    run = model.stock_takes_over(StockPublisher(model.topic, "S", rng), 2 + model.below(4))
    model.publish("S", model.after("A", when(reads(place), run))).unbroken = True
    run = model.next(model.new_publisher("B"), model.below(2))
    model.publish("B", model.after("AS", when(reads(at.WRITE_UID), run))).unbroken = True
    task = model.subscribe(Subscriber(model.topic, "no slot"))
    return model


def stock_replaces(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A stock publisher starts and sends in one step, just before a msgq publisher loads write_uid.

    The scenario omits starts between this load and the next step. The protocol cannot handle such a start, because a
    stock publisher neither announces itself nor waits.
    """
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("slot",), publisher=0)
    task = model.publish("A", model.next(model.new_publisher("A"), 2 + model.below(3)))
    stock = StockPublisher(model.topic, "S", rng)
    begins = model.below(60) if model.chance(0.5) else 0

    def may_come() -> bool:
        return task.finished or (model.machine.clock >= begins and looks_at_uid(task.next_op, rules))

    def unseen() -> Steps[None]:
        yield until(may_come)
        yield preempt(task)
        yield from model.stock_takes_over(stock, 3 + model.below(3))
        yield preempt(task)

    model.publish("S", unseen()).unbroken = True
    model.subscribe(Subscriber(model.topic, "slot", slot=0))
    model.subscribe(Subscriber(model.topic, "no slot"))
    return model


def looks_at_uid(op: Op | None, rules: Rules) -> bool:
    """Is it this that comes next, or the commit without it, where a mutation leaves it out?"""
    if op is None or op[0] not in ("load", "cas", "store"):
        return False
    return op[1] == at.WRITE_UID or (op[1] == at.WRITE_POINTER and not rules.uid_before_commit)


# ---- asleep; two messages fill the ring ----

TINY = Geometry(size=4, chunk=1)


def sleep(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Two subscribers that sleep when there is nothing to read; one may die."""
    model = TopicModel(rng, rules, traced, TINY)
    model.publish("A", model.first(model.new_publisher("A"), 2 + model.below(5), close=False))
    model.sleeper(Subscriber(model.topic, "one"))
    model.sleeper(Subscriber(model.topic, "two"), killed_within=30 if model.chance(0.3) else 0)
    return model


def sleep_restart(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """The same, and the publisher dies anywhere, or is taken over alive; its successor wakes whom it left asleep."""
    model = TopicModel(rng, rules, traced, TINY, own_uids=("A", "B"))
    killed = model.chance(0.8)
    run = model.first(model.new_publisher("A"), 3, close=False)
    model.publish("A", run, killed_within=40 if killed else 0)
    run = model.next(model.new_publisher("B"), model.below(3), close=False)
    model.publish("B", model.after("A", run) if killed else run)
    model.sleeper(Subscriber(model.topic, "one"))
    model.sleeper(Subscriber(model.topic, "two"))
    return model


def sleep_stock(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """A stock publisher signals the helper thread of the sleepers' process, which wakes them."""
    model = TopicModel(rng, rules, traced, TINY, slots=("one", "two"), publisher="S")
    stock = StockPublisher(model.topic, "S", rng, signals=True)
    model.publish("S", model.stock_sends(stock, 2 + model.below(4)))
    model.sleeper(Subscriber(model.topic, "one", slot=0))
    model.sleeper(Subscriber(model.topic, "two", slot=1))
    model.schedule.spawn("helper", model.run_signal_thread())
    return model


def signal_stock(rng: Random, rules: Rules, traced: bool) -> TopicModel:
    """Our publisher signals a stock subscriber, which sleeps when there is nothing to read, if it may do so."""
    model = TopicModel(rng, rules, traced, small_ring(rng), slots=("stock",))
    model.palette = [max(1, size) for size in model.palette]
    model.topic.stock_slots = (0,)
    reader = StockSubscriber(model.topic, "stock", 0)
    model.topic.stock_sleepers[0] = lambda: reader.is_sleeping and reader.cursor < model.topic.oracle.position
    most, abandons = 1 + 2 * model.below(2), 0.5 * model.below(2)
    model.publish(
        "A", model.first(model.new_publisher("A"), 5 + model.below(5), most=most, abandons=abandons, close=False)
    )
    model.schedule.spawn("stock", reader.follow_asleep(model.machine))
    return model


SCENARIOS = [own_publisher, usage, stock_publisher, stock_publisher_alone, stock_subscriber, stock_subscriber_large]
SCENARIOS += [restart, overlap, newcomers, stock_takeover, back_from_stock, same_sentinel, stock_replaces]
SCENARIOS += [sleep, sleep_restart, sleep_stock, signal_stock]
RING = ProtocolModels("ring", PROTOCOL, SCENARIOS, MUTATIONS)

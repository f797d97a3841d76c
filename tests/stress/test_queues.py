"""Work queues: nobody sleeps beside a message, or beside room, whoever else waits, watches or gives up.

Sleepers look again after a second, so a lost wake shows only as a late message, which random traffic
(`test_traffic.py`) does not notice. Two further tests need more places than random traffic fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import select
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.common.stats.workqueue import QueueHandleInfo
from msgq.common.units import NS_PER_S
from msgq.impl.base import clock
from msgq.workqueue import MessageQueue
from tests.stress.process_group import ProcessGroup, finish
from tests.stress.roles import has_input
from tests.support import DEADLINE, LONGER, Child, Task, hear, say, wait_asleep, wait_until
from tools.chaos.messages import make_message, read_message

PRIORITIES = (1, 2, 2, 2, 900, 32767)
END = 2**32 - 1  # the sender of a message after which a taker ends; its priority is the lowest
LATE_S = 0.7  # a woken process takes sooner; a forgotten one polls after 1 s
HESITATION_S = 0.9  # long enough for a busy machine, and shorter than the second after which a sleeper polls
SIZE = 1024
PAUSES = 2  # so often a busy machine may let a process wait; forgotten sleepers are more


# ---- the processes ----


def send(name: str, source: int, count: int, seed: int) -> dict[str, Any]:
    """Send numbered messages, one by one and many at once, of any priority, with pauses."""
    rng, number, slow = random.Random(seed), 0, 0
    with MessageQueue(name) as queue:
        say("ready")
        hear()
        while number < count:
            priority, start = rng.choice(PRIORITIES), time.monotonic()
            if rng.random() < 0.1:
                some = [make_message(source, number + i, rng.randrange(200)) for i in range(min(5, count - number))]
                assert queue.send_many(some, priority, timeout=DEADLINE) == len(some)
                number += len(some)
            else:
                queue.send(make_message(source, number, rng.randrange(200)), priority, timeout=DEADLINE)
                number += 1
            slow += time.monotonic() - start > LATE_S
            if rng.random() < 0.02:
                time.sleep(0.002)  # so that the others sleep, too
    return {"sent": number, "slow": slow}


def end(queue: MessageQueue, takers: int) -> None:
    """Say to so many takers that this was all."""
    for _ in range(takers):
        queue.send(make_message(END, 0, 0), 0, timeout=DEADLINE)


class History:
    """What one taker got, and how much of it too late."""

    def __init__(self) -> None:
        self.ends, self.late = 0, 0
        self.got: list[tuple[int, int]] = []
        self.start_ns = clock.time_ns()

    def enter(self, message: Any) -> None:
        """Enter a message."""
        sender, number = read_message(message.data)
        if sender == END:
            self.ends += 1
            return
        self.got.append((sender, number))
        if message.sent_time > self.start_ns:  # it came while this one waited
            self.late += clock.time_ns() - message.sent_time > LATE_S * NS_PER_S
        self.start_ns = clock.time_ns()

    def report(self) -> dict[str, Any]:
        return {"got": self.got, "late": self.late}


def work(name: str) -> dict[str, Any]:
    """Take messages until one says that this was all."""
    history = History()
    with MessageQueue(name) as queue:
        say("ready")
        while not history.ends:
            history.enter(queue.receive(DEADLINE))
        end(queue, history.ends - 1)  # those that were meant for others
    return history.report()


def drain(name: str) -> list[int]:
    """Receive what is there; return the words that the messages are."""
    with MessageQueue(name) as queue:
        say("ready")
        hear()
        got = []
        while (one := queue.receive(0)) is not None:
            assert int.from_bytes(one.data[:4], "little") == one.priority
            got.append(one.priority << 32 | int.from_bytes(one.data[4:], "little"))
    return got


def take_best(name: str, count: int) -> list[int]:
    """Take so many messages of priority 5, and leave all others; return those that came before an earlier one."""
    last, wrong = -1, []
    with MessageQueue(name) as queue:
        say("ready")
        while last < count - 1:
            job = queue.take(DEADLINE)
            assert job is not None
            if job.priority != 5:
                job.nack()
                continue
            number = int.from_bytes(job.data, "little")
            job.ack()
            if number < last:
                wrong.append(number)
            last = max(number, last)
    return wrong


def sleepers(name: str, handles: int) -> list[int]:
    """Block in many handles at a time, a thread each; return what each got."""
    queues = [MessageQueue(name) for _ in range(handles)]
    got: list[int] = []

    def take(queue: MessageQueue) -> None:
        one = queue.receive(DEADLINE)
        assert one is not None
        got.append(int(one.data))

    threads = [threading.Thread(target=take, args=[queue]) for queue in queues]
    for thread in threads:
        thread.start()
    say("ready")
    for thread in threads:
        thread.join()
    return got


def take_late(name: str, kind: str) -> dict[str, Any]:
    """Watch the queue until the parent ends this; take only messages that no process takes in HESITATION_S seconds."""
    history, poller = History(), msgq.Poller()
    with MessageQueue(name) as queue:
        poller.registerSocket(queue)
        say("ready")
        while not has_input():
            if poller.poll(200) if kind == "poller" else select.select([queue.fileno()], [], [], 0.2)[0]:
                until = time.monotonic() + HESITATION_S
                while queue.current_messages and time.monotonic() < until:
                    time.sleep(0.001)
                if (got := queue.receive(0)) is not None:
                    history.enter(got)
    return history.report()


def give_up(name: str, seed: int) -> int:
    """Wait for messages, and give up at random moments, by time and by a signal whose handler raises."""
    queue, rng, times = MessageQueue(name), random.Random(seed), 0

    def interrupt(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, interrupt)
    say("ready")
    while not has_input():
        with contextlib.suppress(TimeoutError):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.003))
                while True:
                    job = queue.take(rng.uniform(0, 0.002))
                    if job is not None:
                        job.nack()  # it is for others
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        times += 1
    return times


def interrupted(name: str) -> list[str]:
    """Be interrupted by SIGINT in every kind of wait; say each before it begins."""
    queue = MessageQueue(name)
    poller = msgq.Poller()
    poller.registerSocket(queue)
    waits: dict[str, Callable[[], object]] = {
        "receive": queue.receive,
        "receive timed": lambda: queue.receive(DEADLINE),
        "receive_into": lambda: queue.receive_into(bytearray(SIZE)),
        "take": queue.take,
        "take with a lease": lambda: queue.take(lease=DEADLINE),
        "next": lambda: next(queue),
        "poll": lambda: poller.poll(DEADLINE * 1000),
        "select": lambda: select.select([queue.fileno()], [], []),
        "asyncio": lambda: asyncio.run(_forever(queue)),
        "send": lambda: queue.send(b"too much"),
        "send timed": lambda: queue.send(b"too much", timeout=DEADLINE),
        "send_many": lambda: queue.send_many([b"too", b"much"]),
        "wait_space": queue.wait_space,
    }
    done = []
    for what, wait in waits.items():
        if what == "send":
            queue.send(b"all that fits")
        say(what)
        try:
            wait()
        except KeyboardInterrupt:
            done.append(what)
    say("over")
    return done


async def _forever(queue: MessageQueue) -> None:
    await queue.arecv()


# ---- the tests ----


@pytest.mark.parametrize("max_messages", [1, 2])
def test_sleeping_senders_and_receivers_miss_no_wakeup(
    scene: ProcessGroup, endpoint: str, seed: int, max_messages: int
) -> None:
    """What: two senders and two takers share one or two places, so that both sides sleep all the time.

    Failure would mean: a wake is lost, or goes to one who does not use it.
    """
    count = int(800 * LONGER)
    with MessageQueue(endpoint, max_messages=max_messages, max_message_size=SIZE) as queue:
        takers = scene.start_all([(work, endpoint)] * 2)
        sources = scene.start_all([(send, endpoint, i, count, seed - i) for i in range(2)])
        for source in sources:
            source.say("go")
        slow = sum(source.result()["slow"] for source in sources)
        end(queue, len(takers))
        reports = [taker.result() for taker in takers]
        assert_queue_is_empty(queue, 2 * count + len(takers))
    check_each_message_taken_once(reports, 2, count)
    assert slow + sum(report["late"] for report in reports) <= PAUSES, "somebody slept beside a message, or beside room"


def check_each_message_taken_once(reports: list[dict[str, Any]], senders: int, count: int) -> None:
    """Each message of each sender was taken once."""
    got = sorted(tuple(one) for report in reports for one in report["got"])
    assert got == [(sender, number) for sender in range(senders) for number in range(count)]


def assert_queue_is_empty(queue: MessageQueue, sent: int | None = None) -> None:
    """Nothing is left, in no place and of nobody."""
    found = stats.queue(queue.name)
    assert (found.depth, found.in_flight, found.pending_slots, found.corrupt_slots, found.lost_slots) == (0, 0, 0, 0, 0)
    assert found.free_slots == found.max_messages
    assert found.sent == found.acknowledged
    assert found.received == found.acknowledged + found.returned
    assert sent is None or found.sent >= sent
    assert not [one for one in found.handles if one.waits or not one.participant.alive]


def test_64_messages_wake_64_sleeping_receivers_once_each(scene: ProcessGroup, endpoint: str) -> None:
    """What: 64 threads in four processes sleep, a handle each; 64 messages wake one each."""
    with MessageQueue(endpoint) as queue:
        children = scene.start_all([(sleepers, endpoint, 16)] * 4)
        wait_until(lambda: count_sleeping_handles(queue, "receiving") == 64)
        for number in range(32):
            queue.send(b"%d" % number)
        wait_until(lambda: count_sleeping_handles(queue, "receiving") == 32)
        assert queue.send_many([b"%d" % number for number in range(32, 64)]) == 32
        got = itertools.chain.from_iterable(child.result() for child in children)
        assert sorted(got) == list(range(64))
        assert_queue_is_empty(queue)


def count_sleeping_handles(queue: MessageQueue, how: str) -> int:
    return sum(how in one.waits for one in stats.queue(queue.name).handles)


def test_queue_with_65536_messages_is_drained_in_order(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: 65,536 messages wait; three receivers drain the queue together, each in the right order."""
    rng, count = random.Random(seed), 65536
    with MessageQueue(endpoint, max_messages=count, max_message_size=16) as queue:
        words = []
        for number in range(count):
            priority = rng.choice((0, 0, 1, 5, 32767))
            words.append(priority << 32 | count - number)
            queue.send(priority.to_bytes(4, "little") + (count - number).to_bytes(4, "little"), priority, timeout=0)
        assert stats.queue(endpoint).depth == count
        children = scene.start_all([(drain, endpoint)] * 3)
        drained = finish(children)
        assert all(got == sorted(got, reverse=True) for got in drained)
        assert sorted(itertools.chain.from_iterable(drained)) == sorted(words)
        assert_queue_is_empty(queue)


@pytest.mark.nightly
def test_messages_of_one_sender_keep_order_during_slot_scan(scene: ProcessGroup, endpoint: str) -> None:
    """What: one process sends without a pause into places far apart; another takes, looking at 65,536 places each time.

    Why: a look may have passed the place into which a message comes, and find the next one, in a place before it.
    """
    count = int(20000 * LONGER)
    with MessageQueue(endpoint, max_messages=65536, max_message_size=8) as queue:
        for number in range(65536):
            queue.send(b"old", number % 37 == 0, timeout=0)
        while (one := queue.receive(0)) is not None and one.priority:
            pass  # so free places are far apart
        (taker,) = scene.start_all([(take_best, endpoint, count)])
        for number in range(count):
            queue.send(number.to_bytes(4, "little"), 5, timeout=DEADLINE)
        assert taker.result() == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["poller", "fileno"])
def test_polling_processes_do_not_take_wakeups_from_blocked_receiver(
    scene: ProcessGroup, endpoint: str, seed: int, kind: str
) -> None:
    """What: two processes watch, and hesitate before they take; a third one is blocked, and gets messages at once."""
    count = int(30 * LONGER)
    with MessageQueue(endpoint) as queue:
        watchers = scene.start_all([(take_late, endpoint, kind)] * 2)
        (taker,) = scene.start_all([(work, endpoint)])
        for number in range(count):
            wait_until(
                lambda: (
                    (count_sleeping_handles(queue, "receiving"), count_sleeping_handles(queue, "watching")) == (1, 2)
                )
            )
            queue.send(make_message(0, number, 10), 1)
        wait_until(lambda: stats.queue(endpoint).depth == 0)
        reports = finish(watchers)
        end(queue, 1)
        reports.append(taker.result())
        check_each_message_taken_once(reports, 1, count)
        assert len(reports[-1]["got"]) > count * 2 / 3, "the blocked one was woken, too"
        assert_queue_is_empty(queue)


@pytest.mark.nightly
def test_interrupted_waiters_pass_wakeups_to_other_waiters(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: two processes wait and give up all the time, by time-outs and handlers that raise, also in the moment in
    which they are woken, and give back what they took; two others wait patiently.
    """
    with MessageQueue(endpoint, max_messages=4) as queue:
        fickle = scene.start_all([(give_up, endpoint, seed + i) for i in range(2)])
        takers = scene.start_all([(work, endpoint) for _ in range(2)])
        count = int(1000 * LONGER)
        for number in range(count):
            queue.send(make_message(0, number, 10), 1, timeout=DEADLINE)
        wait_until(lambda: stats.queue(endpoint).depth + stats.queue(endpoint).in_flight == 0)
        print(finish(fickle))
        end(queue, 2)
        reports = [taker.result() for taker in takers]
        check_each_message_taken_once(reports, 1, count)
        assert sum(report["late"] for report in reports) <= PAUSES
        assert_queue_is_empty(queue)


def test_sigint_in_each_wait_raises_keyboard_interrupt(scene: ProcessGroup, endpoint: str) -> None:
    """Each wait ends with KeyboardInterrupt, at once, and leaves nothing behind; the handle can be used again."""
    with MessageQueue(endpoint, max_messages=1) as queue:
        child = scene.start_child(interrupted, endpoint)
        done = []
        while (what := child.hear()) != "over":
            how = "sending" if what.startswith(("send", "wait")) else "receiving"
            how = "watching" if what in ("poll", "select", "asyncio") else how
            wait_until(lambda: handle_of_child(queue, child).waits == (how,), what)  # noqa: B023
            wait_asleep(child.pid)  # a descriptor stays watched
            child.kill(signal.SIGINT)
            done.append(what)
        assert len(done) == 13
        assert child.result() == done
        got = queue.receive(0)
        assert got is not None
        assert (got.data, stats.queue(endpoint).free_slots) == (b"all that fits", 1)


@pytest.mark.parametrize("how", ["nack", "close", "drop", "raise"])
def test_returned_message_wakes_sleeping_receiver(endpoint: str, how: str) -> None:
    with MessageQueue(endpoint) as queue:
        for _ in range(4):
            with MessageQueue(endpoint) as other:
                other.send(b"x")
                jobs = [other.take(0)]
                task = Task(queue.receive)
                wait_until(lambda: count_sleeping_handles(queue, "receiving") == 1)
                assert task.is_woken_by(partial(give_back, how, other, jobs))
                assert task.result().deliveries == 2


def give_back(how: str, queue: MessageQueue, jobs: list[Any]) -> None:
    if how == "nack":
        jobs[0].nack()
    elif how == "close":
        queue.close()
    elif how == "drop":
        jobs.clear()
    else:
        with contextlib.suppress(ZeroDivisionError), jobs[0]:
            raise ZeroDivisionError


def handle_of_child(queue: MessageQueue, child: Child) -> QueueHandleInfo:
    (found,) = (one for one in stats.queue(queue.name).handles if one.participant.pid == child.pid)
    return found


def test_close_ends_threads_that_wait_or_poll(endpoint: str) -> None:
    """What: a handle is closed while threads wait in it, and while it is watched."""
    before = threading.active_count()
    for how in (lambda queue: queue.receive(), lambda queue: queue.take()):
        queue = MessageQueue(endpoint)
        tasks = [Task(wait_closed, how, queue) for _ in range(4)]
        wait_until(lambda: count_sleeping_handles(queue, "receiving") == 1)  # noqa: B023
        queue.close()
        assert [task.result() for task in tasks] == ["EndpointClosedError"] * 4
    assert threading.active_count() == before
    assert stats.queue(endpoint).handles == ()


def wait_closed(how: Callable[[MessageQueue], object], queue: MessageQueue) -> str:
    try:
        how(queue)
    except Exception as error:
        return type(error).__name__
    return ""

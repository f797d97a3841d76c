"""What the processes of the stress tests of work queues do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgq
from msgq.common.units import NS_PER_S
from msgq.errors import QueueFullError
from msgq.impl.base import clock
from msgq.workqueue import MessageQueue
from tests.stress.channels import message, read
from tests.stress.roles import has_input
from tests.support import DEADLINE, hear, say

KINDS = ("receive", "take", "many", "into", "iterate", "poller", "fileno", "asyncio")
PRIORITIES = (1, 2, 2, 2, 900, 32767)
END = 2**32 - 1  # the source of a message after which a taker ends; its priority is the lowest
LATE_S = 0.7  # who is woken takes sooner; who was forgotten looks after 1 s
HESITATION_S = 0.9  # long enough for a busy machine, and shorter than the second after which a sleeper polls
SIZE = 1024


# ---- senders ----


def send(name: str, source: int, count: int, seed: int) -> dict[str, Any]:
    """Send numbered messages, one by one and many at once, of any priority, with pauses."""
    rng, number, slow = random.Random(seed), 0, 0
    with MessageQueue(name) as queue:
        say("ready")
        hear()
        while number < count:
            priority, start = rng.choice(PRIORITIES), time.monotonic()
            if rng.random() < 0.1:
                some = [message(source, number + i, rng.randrange(200)) for i in range(min(5, count - number))]
                assert queue.send_many(some, priority, timeout=DEADLINE) == len(some)
                number += len(some)
            else:
                queue.send(message(source, number, rng.randrange(200)), priority, timeout=DEADLINE)
                number += 1
            slow += time.monotonic() - start > LATE_S
            if rng.random() < 0.02:
                time.sleep(0.002)  # so that the others sleep, too
    return {"sent": number, "slow": slow}


def end(queue: MessageQueue, takers: int) -> None:
    """Say to so many takers that this was all."""
    for _ in range(takers):
        queue.send(message(END, 0, 0), 0, timeout=DEADLINE)


# ---- takers ----


class History:
    """What one taker got."""

    def __init__(self, ordered: bool) -> None:
        self.ordered, self.ends, self.late = ordered, 0, 0
        self.got: dict[int, list[int]] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._start_ns = 0

    def waits(self) -> None:
        """The taker begins to wait, or to look."""
        self._start_ns = clock.time_ns()

    def enter(self, data: Any, priority: int, sent_ns: int = 0) -> None:
        """Enter a message: whole, and behind all others of its sender and priority."""
        source, number = read(data)
        if source == END:
            self.ends += 1
            return
        if self.ordered:
            assert number > self._last.get((source, priority), -1), f"sender {source}: {number} came too late"
        self._last[source, priority] = number
        self.got.setdefault(source, []).append(number)
        if sent_ns > self._start_ns:  # it came while this one waited
            self.late += clock.time_ns() - sent_ns > LATE_S * NS_PER_S

    def report(self) -> dict[str, Any]:
        return {"got": list(self.got.items()), "late": self.late}


def work(name: str, kind: str, seed: int, ordered: bool = True) -> dict[str, Any]:
    """Take messages until one says that this was all."""
    history, rng = History(ordered), random.Random(seed)
    with MessageQueue(name) as queue:
        say("ready")
        if kind == "asyncio":
            asyncio.run(_await(queue, history))
        else:
            for _ in taker(kind, queue, history, rng):
                if history.ends:
                    break
        end(queue, history.ends - 1)  # those that were meant for others
    return {"kind": kind, **history.report()}


def taker(kind: str, queue: MessageQueue, history: History, rng: random.Random) -> Iterator[None]:
    """Take some messages again and again, waiting until there are some."""
    if kind in ("poller", "fileno"):
        return _watch(kind, queue, history)
    return _block(kind, queue, history, rng)


def _block(kind: str, queue: MessageQueue, history: History, rng: random.Random) -> Iterator[None]:
    buffer = bytearray(SIZE)
    while True:
        history.waits()
        if kind == "take":
            _do(queue, history, rng)
        elif kind == "into":
            found = queue.receive_into(buffer, timeout=DEADLINE)
            assert found is not None
            history.enter(bytes(buffer[: found[0]]), found[1])
        else:
            got = next(queue) if kind == "iterate" else queue.receive(DEADLINE)
            assert got is not None
            for one in [got, *(queue.receive_many(rng.randrange(5)) if kind == "many" else [])]:
                history.enter(one.data, one.priority, one.sent_time)
        yield


def _do(queue: MessageQueue, history: History, rng: random.Random) -> None:
    job = queue.take(DEADLINE, lease=rng.choice((None, 60.0)))
    assert job is not None
    if rng.random() < 0.1:
        job.nack()
        return
    history.enter(job.data, job.priority, job.sent_time)
    job.ack()


def _watch(kind: str, queue: MessageQueue, history: History) -> Iterator[None]:
    poller = msgq.Poller()
    poller.registerSocket(queue)
    while True:
        history.waits()
        if kind == "poller":
            assert poller.poll(DEADLINE * 1000)
        else:
            assert select.select([queue.fileno()], [], [], DEADLINE)[0]
        while not history.ends and (got := queue.receive(0)) is not None:
            history.enter(got.data, got.priority, got.sent_time)
        yield


async def _await(queue: MessageQueue, history: History) -> None:
    while not history.ends:
        history.waits()
        got = await asyncio.wait_for(queue.arecv(), DEADLINE)
        history.enter(got.data, got.priority, got.sent_time)


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


# ---- those who disturb ----


def take_late(name: str, kind: str) -> dict[str, Any]:
    """Watch the queue until the parent ends this; take only messages that no process takes in HESITATION_S seconds."""
    history, poller = History(ordered=True), msgq.Poller()
    with MessageQueue(name) as queue:
        poller.registerSocket(queue)
        say("ready")
        while not has_input():
            if poller.poll(200) if kind == "poller" else select.select([queue.fileno()], [], [], 0.2)[0]:
                until = time.monotonic() + HESITATION_S
                while queue.current_messages and time.monotonic() < until:
                    time.sleep(0.001)
                if (got := queue.receive(0)) is not None:
                    history.enter(got.data, got.priority, got.sent_time)
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


def flood(name: str, kind: str) -> dict[str, int]:
    """Send, or take, without a pause until the parent says so."""
    count = 0
    with MessageQueue(name) as queue:
        say("ready")
        while not has_input():
            with contextlib.suppress(QueueFullError):
                if kind == "send":
                    queue.send(b"x" * 500, timeout=0.01)
                    count += 1
                else:
                    count += queue.receive(0.01) is not None
    return {kind: count}


def come_and_go(name: str, source: int, count: int, seed: int) -> dict[str, Any]:
    """Open the queue, send some, take some, leave some jobs undone, close it; again and again."""
    rng, number, history = random.Random(seed), 0, History(ordered=False)
    say("ready")
    while number < count or not history.ends:
        with MessageQueue(name) as queue:
            for _ in range(min(rng.randrange(5), count - number)):
                queue.send(message(source, number, 50), rng.choice(PRIORITIES), timeout=DEADLINE)
                number += 1
            if number == count:
                say("sent")
                number += 1
            jobs = [queue.take(0.01) for _ in range(rng.randrange(6))]
            for job in jobs:
                if job is not None and not history.ends and rng.random() < 0.7:
                    history.enter(job.data, job.priority)
                    job.ack()
    return history.report()


# ---- interrupted ----


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

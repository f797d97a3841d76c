"""Queues in many threads at once: jobs, events, notifications, sizes and asyncio; also without the GIL.

See test_shared_handles.py for what the tests demand of all kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytest

import msgq
from msgq.common.queue_events import Event
from msgq.errors import ConcurrentUseError, IpcError, QueueFullError, StateError
from msgq.impl.workqueue.core import QueueBrowser
from msgq.workqueue import JobClient, MessageQueue, Worker
from tests.stress.thread_calls import (
    BYTES,
    CALLS,
    LARGE,
    THREADS,
    Cycle,
    check_once,
    end_in_other_threads,
    end_wait_by_close,
    flow,
    in_threads,
    number_of,
    spread,
    words,
)
from tests.support import run_child


def open_queue(max_messages: int = 8, max_message_size: int = BYTES, **options: Any) -> MessageQueue:
    return MessageQueue("shared", max_messages=max_messages, max_message_size=max_message_size, **options)


def check_empty(queue: MessageQueue) -> None:
    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.free_slots) == (0, 0, stats.max_messages), stats


# ---- jobs ----


def end_jobs_anywhere() -> None:
    """Jobs end in other threads than they were taken in. Each message is acknowledged once."""
    queue = open_queue(CALLS)  # with room for all messages, because many return
    acknowledged = list[int]()

    def acknowledge(job: Any) -> None:
        job.ack()
        acknowledged.append(number_of(job.data))

    def acknowledge_in_two_threads(job: Any) -> None:
        in_threads(*[lambda: acknowledge_or_refuse(job)] * 2)

    def acknowledge_or_refuse(job: Any) -> None:
        with contextlib.suppress(StateError):
            acknowledge(job)

    def fail(job: Any) -> None:
        with contextlib.suppress(ZeroDivisionError), job:
            raise ZeroDivisionError

    def take(pass_on: Callable[[Any], None]) -> None:
        for number in range(CALLS):
            queue.send(words(number), timeout=None)
            if (job := queue.take(0)) is not None:
                pass_on(job)
                del job

    ends = [acknowledge, lambda job: job.nack(), lambda job: job.nack(0.001), lambda _: None, Cycle, fail]
    end_in_other_threads(take, [*ends, acknowledge_in_two_threads])
    in_threads(lambda: None)
    while (job := queue.take(0.1)) is not None:
        acknowledge(job)
    assert sorted(acknowledged) == list(range(CALLS))
    counts = queue.stats()
    assert (counts.sent, counts.acknowledged) == (CALLS, CALLS)
    assert counts.received == counts.acknowledged + counts.returned, counts
    check_empty(queue)


def end_jobs_at_once() -> None:
    """Counters and take numbers of the handle stay right, although threads end and take jobs at once."""
    queue = open_queue(256)
    sent = 0
    for _ in range(CALLS // 10):
        sent += queue.send_many([words(number) for number in range(256)])
        jobs = [queue.take(0) for _ in range(192)]
        parts = [jobs[i::THREADS] for i in range(THREADS)]
        in_threads(
            *[lambda part=part: [job.ack() for job in part] for part in parts[2:]],
            *[lambda part=part: [job.nack(0.001) for job in part] for part in parts[:2]],
            *[lambda: [queue.take().ack() for _ in range(16)]] * 2,
        )
        while queue.stats().acknowledged < sent:  # a delay ends after at most two ticks of 10 ms
            queue.take().ack()
        counts = queue.stats()
        assert (counts.sent, counts.acknowledged, counts.received) == (sent, sent, sent + counts.returned), counts
        check_empty(queue)


def share_iterators_of_jobs() -> None:
    queue = open_queue()
    shared: Any = queue.jobs(timeout=0.001)
    done = threading.Event()

    def iterate() -> list[int]:
        taken = list[int]()
        while not done.is_set() or queue.current_messages:
            taken.extend(number_of(job.data) for job in queue.jobs(timeout=0.001))
        return taken

    def iterate_shared() -> list[int]:
        """The end of the shared iterator's loop is the end of all."""
        taken = list[int]()
        while True:
            try:
                taken.append(number_of(next(shared).data))
            except ConcurrentUseError:
                continue
            except StopIteration:
                return taken
            except StateError:  # another thread has ended the job in between
                continue

    def send() -> list[int]:
        for number in range(CALLS):
            queue.send(words(number), timeout=None)
        done.set()
        return list(range(CALLS))

    sent, *taken = in_threads(send, iterate, iterate, iterate_shared, iterate_shared)
    shared.close()
    check_once(sent, [*chain(*taken), *(number_of(message.data) for message in queue.receive_many())], 0)


def share_job_client() -> None:
    queue = open_queue(32, 512)
    client = JobClient(queue, max_pending=16)
    workers = [Worker(queue, lambda message: bytes(message.data)) for _ in range(3)]
    done = threading.Event()

    def ask(i: int) -> None:
        for number in range(i, CALLS // 2, 4):
            future = client.submit(words(number))
            if number % 7 == 0 and future.cancel():
                continue
            assert number_of(future.result(30)) == number
            repr(client), repr(future), future.is_done()

    def run(i: int) -> None:
        try:
            ask(i)
        finally:
            if i == 0:
                done.set()

    def work(worker: Worker) -> None:
        while not done.is_set() or client._pending_numbers:
            worker.run(0.01)

    in_threads(*[lambda i=i: run(i) for i in range(4)], *[lambda each=each: work(each) for each in workers])
    client.close()


# ---- large messages, sizes, statistics ----


def share_large_copies() -> None:
    queue = open_queue(4, LARGE)

    def receive() -> Any:
        message = queue.receive(0.001)
        if message is not None:
            assert message.data == message.data[:BYTES] * (LARGE // BYTES), "torn"
        return None if message is None else message.data[:BYTES]

    senders = [lambda i=i: [send(queue, i * CALLS + n) for n in range(CALLS // 20)] for i in range(4)]
    sent, *received = flow(senders, receive, 4)
    check_once(sent, [*chain(*received)], 0)
    check_empty(queue)


def send(queue: MessageQueue, number: int) -> int:
    queue.send(words(number) * (LARGE // BYTES), timeout=None)
    return number


def choose_sizes_at_once() -> None:
    """The first sends choose the sizes, while other threads wait, are notified, and read statistics."""
    for number in range(CALLS // 10):
        queue, other = MessageQueue("sizes"), MessageQueue("sizes")
        other.notify(lambda _: None)

        def use(i: int, queue: MessageQueue = queue, other: MessageQueue = other, number: int = number) -> Any:
            (queue if i % 2 else other).send(words(number))
            queue.stats(), other.stats(), other.identity, queue.max_messages
            return other.receive(5) if i < 2 else queue.receive(5)

        received: list[Any] = in_threads(*[partial(use, i) for i in range(4)])
        assert [number_of(message.data) for message in received] == [number] * 4
        assert queue.max_messages == other.max_messages == 128
        queue.unlink()
        queue.close()
        other.close()


def read_beside_traffic() -> None:
    queue = open_queue(32)
    browser = QueueBrowser("shared", queue.prefix)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            messages: list[Any] = [*queue.peek(), *browser.messages(), *browser.unseen()]
            for message in messages:
                number_of(message.data)
            assert 0 <= queue.stats().depth <= 32
            repr(queue), browser.sent, queue.delayed_messages

    def run() -> None:
        try:
            sent, *received = flow(spread(lambda number: queue.send(words(number), timeout=None))[:2], receive, 2)
            check_once(sent, [*chain(*received)], 0)
        finally:
            is_over.set()

    def receive() -> Any:
        message = queue.receive(0.001)
        return None if message is None else message.data

    in_threads(run, read, read)


# ---- events and notifications ----


def publish_events_at_once() -> None:
    """Each change has one event, whole, although all threads use one handle. Lost events are counted."""
    queue = open_queue(64, events="payload")
    events = msgq.Channel("shared:events").subscriber()
    is_over = threading.Event()

    def receive() -> Any:
        while (job := queue.take(0.001)) is not None:
            if job.deliveries == 1 and number_of(job.data) % 5 == 0:
                job.nack()
                continue
            job.ack()
            return job.data
        return None

    def collect() -> Counter[int]:
        found = Counter[int]()
        while True:
            was_over = is_over.is_set()
            while (event := events.receive(0)) is not None:
                found[event[0]] += 1
                if event[0] == Event.SENT:
                    number_of(event[-BYTES:])
            if was_over:
                return found

    def run() -> None:
        try:
            sent, *received = flow(spread(lambda number: queue.send(words(number), timeout=None))[:4], receive, 4)
            check_once(sent, [*chain(*received)], 0)
        finally:
            is_over.set()

    _, found = in_threads(run, collect)
    stats = queue.stats()
    changes = stats.sent + stats.received + stats.acknowledged + stats.returned
    assert sum(found.values()) + events.lost + stats.events_lost == changes, (found, events.lost, stats)


def change_notifications_at_once() -> None:
    queue = open_queue(64)
    notified = Counter[int]()

    def notify(i: int) -> None:
        for number in range(CALLS // 10):
            queue.notify(lambda handle: notified.update([handle.max_messages]), once=bool(i % 2))
            if number % 3 == 0:
                queue.notify(None)

    def use() -> None:
        for number in range(CALLS):
            queue.send(words(number), timeout=0)
            assert queue.receive(5) is not None

    in_threads(use, use, notify.__get__(0), notify.__get__(1), notify.__get__(2))
    last = threading.Event()
    queue.notify(lambda _: last.set())
    queue.receive_many()
    queue.send(words(1))
    assert last.wait(10)


# ---- waits ----


def await_in_two_loops() -> None:
    """Each of two threads has its own event loop, its own handle, and tasks that wait."""
    senders = open_queue(16)
    receivers = [open_queue(16) for _ in range(2)]

    def run(queue: MessageQueue) -> list[int]:
        async def receive() -> list[int]:
            taken = list[int]()
            with contextlib.suppress(TimeoutError):
                while True:
                    taken.append(number_of((await asyncio.wait_for(queue.areceive(), 0.5)).data))
            return taken

        return asyncio.run(receive())

    def send_all() -> list[int]:
        for number in range(CALLS):
            senders.send(words(number), timeout=None)
        return list(range(CALLS))

    sent, *taken = in_threads(send_all, *[lambda each=each: run(each) for each in receivers])
    check_once(sent, [*chain(*taken)], 0)


def take_next_job(queue: MessageQueue) -> Any:
    return next(queue.jobs())


def close_beside_waits() -> None:
    """A close beside the begin of each wait ends the wait, in all threads that wait."""
    for number in range(CALLS // 4):
        with_events = number % 2 == 1
        queue = MessageQueue(f"empty{with_events}", max_messages=2, max_message_size=8, events=with_events or None)
        full = MessageQueue("full", max_messages=2, max_message_size=8)
        with contextlib.suppress(QueueFullError):
            full.send_many([b"1", b"2"], timeout=0)
        waits: list[tuple[Any, Callable[[], Any]]] = [
            (queue, queue.receive),
            (queue, queue.take),
            (queue, partial(queue.receive_into, bytearray(BYTES))),
            (queue, partial(take_next_job, queue)),
            (full, partial(full.send, b"3")),
            (full, partial(full.send_many, [b"3"])),
            (full, full.wait_space),
        ]
        handle, call = waits[number % 7]
        end_wait_by_close(handle, call, number * 7 % 3000, threads=2)
        queue.close()
        full.close()


def use_until_closed(call: Callable[[], Any]) -> None:
    with contextlib.suppress(IpcError):
        while True:
            with contextlib.suppress(QueueFullError):
                call()


def close_beside_traffic() -> None:
    """A handle is closed beside jobs, events, notifications and statistics: its messages go on to the next handle."""
    keeper = open_queue(32, events=True)

    def use_and_close(number: int) -> None:
        queue = open_queue(32)
        queue.notify(lambda _: None)

        def end_job() -> None:
            if (job := queue.take(0)) is not None:
                job.nack()

        calls = [
            end_job,
            lambda: queue.take(0.001),  # a dropped job returns
            lambda: queue.send(words(number), timeout=0.001),
            queue.stats,
            lambda: queue.notify(lambda _: None),
        ]
        in_threads(*[partial(use_until_closed, call) for call in calls], queue.close)

    for number in range(CALLS // 10):
        use_and_close(number)
        gc.collect()
        for message in keeper.receive_many():
            number_of(message.data)
        assert keeper.in_flight == 0
        check_empty(keeper)


SHARED = [
    end_jobs_anywhere,
    end_jobs_at_once,
    share_iterators_of_jobs,
    share_job_client,
    share_large_copies,
    choose_sizes_at_once,
    read_beside_traffic,
    publish_events_at_once,
    change_notifications_at_once,
    await_in_two_loops,
    close_beside_waits,
    close_beside_traffic,
]


@pytest.mark.parametrize("scenario", SHARED, ids=lambda each: each.__name__)
def test_threads_that_use_queues_at_once_break_nothing(prefix: str, scenario: Callable[[], None]) -> None:
    run_child(scenario)

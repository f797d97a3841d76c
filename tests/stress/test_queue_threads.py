"""Threads that share a work queue's handle, close it under each other, and leave jobs behind."""

from __future__ import annotations

import gc
import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgq.errors import EndpointClosedError, LeaseExpiredError, QueueFullError, StateError
from msgq.impl.workqueue import notifier
from msgq.workqueue import MessageQueue
from tests.stress.queue_waits import PLACES, RECEIVES, WAITS, prepare
from tests.support import DEADLINE, LONGER, Task, run_child, wait_until

MEGABYTE = 1 << 20


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    queue = MessageQueue(endpoint, max_messages=PLACES, max_message_size=64)
    yield queue
    queue.unlink()
    queue.close()


# ---- one handle, many threads ----


def test_close_ends_waits_of_all_other_threads(endpoint: str) -> None:
    for _ in range(int(5 * LONGER)):
        for names in (RECEIVES, ("send", "send_many", "wait_space")):
            queue = MessageQueue(endpoint, max_messages=PLACES, max_message_size=64)
            prepare(queue, names[0])
            waiting = [Task(WAITS[name], queue) for name in names]
            for task in waiting:
                task.wait_asleep()
            queue.close()
            for task in waiting:
                with pytest.raises(EndpointClosedError):
                    task.result()
            assert queue.closed
            MessageQueue.unlink_name(endpoint)


def test_close_during_copy_of_large_messages_is_safe(endpoint: str) -> None:
    """What: two threads send megabytes and two receive them, without the GIL, while others close both handles.

    Why: who closes gives back the places in which a message is copied.

    Failure would mean: a message that was sent is torn, or lost, or the mapping is gone under a copy.
    """
    for number in range(int(10 * LONGER)):
        sender = MessageQueue(endpoint, max_messages=4, max_message_size=MEGABYTE)
        receiver = MessageQueue(endpoint)
        sent: list[int] = []
        received: list[bytes] = []

        def send(me: int, sender: MessageQueue = sender, sent: list[int] = sent) -> None:
            for i in itertools.count():
                sender.send(bytes([me * 100 + i % 100]) * MEGABYTE)
                sent.append(1)

        def receive(receiver: MessageQueue = receiver, received: list[bytes] = received) -> None:
            while True:
                received.append(receiver.receive().data)

        senders, receivers = [Task(send, i) for i in range(2)], [Task(receive) for _ in range(2)]
        wait_until(lambda: len(received) > number)  # noqa: B023  # called at once
        sender.close()
        for task in senders:
            with pytest.raises(EndpointClosedError):
                task.result()
        receiver.close()
        for task in receivers:
            with pytest.raises(EndpointClosedError):
                task.result()
        with MessageQueue(endpoint) as rest:
            received += [message.data for message in rest.receive_many()]
            rest.unlink()
        assert all(data == data[:1] * MEGABYTE for data in received)
        assert len(received) == len(sent)


# ---- jobs that nobody ends ----


def drop_where_it_is_told(endpoint: str) -> str:
    """Child: drop a handle at the moment in which the thread that tells refers to it."""
    held: list[Any] = []
    remove = notifier._notifier_thread.remove

    def remove_while_it_tells(registration: notifier.Registration) -> None:
        held.append(registration.queue())
        remove(registration)

    notifier._notifier_thread.remove = remove_while_it_tells  # type: ignore[method-assign]
    queue = MessageQueue(endpoint)
    queue.notify(lambda _: None)
    queue.unlink()
    del queue
    gc.collect()
    held[0].send(b"message")
    return str(held[0].receive(0).data.decode())


def test_garbage_collection_of_handle_during_notification_is_safe(endpoint: str) -> None:
    """Failure would mean: the thread that tells gets a handle that is just freed."""
    assert run_child(drop_where_it_is_told, endpoint) == "message"


def count_thread_sleeps() -> int:
    """Return how often the threads of this process have gone to sleep."""
    texts = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[0]) for text in texts)


def watch_beside_a_job(endpoint: str) -> int:
    """Child: return how often it wakes up in half a second in which nothing happens."""
    with MessageQueue(endpoint) as queue, MessageQueue(endpoint) as other:
        queue.fileno()
        other.send(b"")
        job = other.take()
        for _ in range(3):
            assert queue.receive(0) is None
        before = count_thread_sleeps()
        time.sleep(0.5)
        woken = count_thread_sleeps() - before
        job.ack()
        other.unlink()
    return woken


def test_unused_descriptor_of_busy_queue_causes_no_wakeups(endpoint: str) -> None:
    """Failure would mean: an idle process that watches the queue looks at it a hundred times a second, for ever."""
    assert run_child(watch_beside_a_job, endpoint) < 20


def test_close_during_receive_many_loses_no_message(endpoint: str) -> None:
    """What: a thread receives ten large messages at a time; another closes the handle in the middle.

    Failure would mean: messages that were received when the handle was closed are lost.
    """
    with MessageQueue(endpoint, max_messages=10, max_message_size=4 * MEGABYTE) as queue:
        for lap in range(5):
            receiver = MessageQueue(endpoint)
            queue.send_many([b"m" * 4 * MEGABYTE] * 10)
            task = Task(receiver.receive_many)
            wait_until(lambda: queue.current_messages < 10 - lap)  # noqa: B023  # called at once
            receiver.close()
            assert len(task.result()) + len(queue.receive_many()) == 10
        queue.unlink()


def test_messages_of_dropped_jobs_return_to_queue(queue: MessageQueue) -> None:
    def drop_in_a_cycle(job: Any) -> None:
        cycle = [job]
        cycle.append(cycle)

    def drop_in_a_thread(job: Any) -> None:
        jobs = [job]
        Task(jobs.clear).result()

    queue.send(b"again")
    for number, drop in enumerate((lambda job: None, drop_in_a_cycle, drop_in_a_thread), 1):
        drop(queue.take(0))
        gc.collect()
        assert queue.in_flight == 0
        assert queue.peek()[0].deliveries == number


def test_garbage_collection_of_queue_and_job_returns_message(queue: MessageQueue, endpoint: str) -> None:
    queue.send(b"again")

    class Holder:
        pass

    holder = Holder()
    holder.queue = MessageQueue(endpoint)  # type: ignore[attr-defined]
    holder.job = holder.queue.take(0)  # type: ignore[attr-defined]
    holder.myself = holder  # type: ignore[attr-defined]
    del holder
    gc.collect()
    assert queue.receive(0).data == b"again"  # type: ignore[union-attr]


def test_message_of_job_returns_when_queue_closes(queue: MessageQueue, endpoint: str) -> None:
    queue.send(b"again")
    with MessageQueue(endpoint) as other:
        job = other.take(0)
    for end in (job.ack, job.nack, job.__enter__):  # type: ignore[union-attr]
        with pytest.raises(EndpointClosedError):
            end()
    message = queue.receive(0)
    del job, other
    assert message is not None
    assert message.deliveries == 2
    assert queue.receive(0) is None


def test_job_ended_by_many_threads_ends_once(queue: MessageQueue) -> None:
    """It ends once, whoever is the fastest."""
    for _ in range(50):
        queue.send(b"once")
        job, gate, outcomes = queue.take(0), threading.Barrier(4), Counter()  # type: ignore[var-annotated]

        def end(job: Any = job, gate: Any = gate, outcomes: Any = outcomes) -> None:
            gate.wait(DEADLINE)
            try:
                job.ack()
                outcomes["acked"] += 1
            except (StateError, LeaseExpiredError):
                outcomes["refused"] += 1

        for task in [Task(end) for _ in range(4)]:
            task.result()
        assert outcomes == {"acked": 1, "refused": 3}
        assert queue.receive(0) is None


# ---- the end of the interpreter ----


def end_in_the_middle(endpoint: str) -> int:
    """Child: return while a job is open and daemon threads wait in each way."""
    queue, full = MessageQueue(endpoint), MessageQueue(f"{endpoint}-full", max_messages=PLACES, max_message_size=64)
    threading.excepthook = lambda _: None  # suppresses the errors of threads whose queue was closed
    jobs: list[Any] = [queue.take(0), {}]
    jobs[1]["myself"] = jobs
    empty = MessageQueue(f"{endpoint}-empty", max_messages=PLACES, max_message_size=64)
    prepare(full, "send")
    empty.notify(lambda _: None)
    waiting = [Task(WAITS[wait], empty if wait in RECEIVES else full) for wait in WAITS]
    for task in waiting:
        task.wait_asleep()
    end_in_the_middle.kept = jobs, waiting  # type: ignore[attr-defined]
    for each in (full, empty):
        each.unlink()
    return 1


def test_interpreter_exit_returns_messages_of_all_jobs(queue: MessageQueue, endpoint: str) -> None:
    queue.send(b"again")
    assert run_child(end_in_the_middle, endpoint) == 1
    message = queue.receive(0)
    assert message is not None
    assert message.data == b"again"


# ---- all of it, at random ----


@pytest.mark.parametrize("messages", [1000, pytest.param(int(10_000 * LONGER), marks=pytest.mark.nightly)])
def test_threads_with_random_operations_keep_queue_correct(endpoint: str, seed: int, messages: int) -> None:
    """What: threads use, close and reopen handles that they share, in all ways.

    Why: what a receiver remembers, its count of takes, and the bits of its sleep belong to the handle. Closing, waiting
    and taking meet in orders that nobody thought of.

    Failure would mean: a crash, a hang, a message that was done twice, or one that is lost.
    """
    handles = [MessageQueue(endpoint, max_messages=20, max_message_size=64) for _ in range(3)]
    numbers, sent, done = itertools.count(), set(), Counter()  # type: ignore[var-annotated]

    def one_call(rng: random.Random, queue: MessageQueue) -> None:
        match rng.randrange(10):
            case 0 if rng.random() < 0.1:
                handles[handles.index(queue)] = MessageQueue(endpoint)
                queue.close()
            case 1 | 2:
                number = next(numbers)
                queue.send(b"%d" % number, rng.randrange(3), timeout=0.01)
                sent.add(number)
            case 3:
                batch = [next(numbers) for _ in range(rng.randrange(5))]
                count = queue.send_many([b"%d" % number for number in batch], rng.randrange(3), timeout=0)
                sent.update(batch[:count])
            case 4:
                queue.peek(3)
                queue.wait_space(0.001)
                done.update(int(message.data) for message in queue.receive_many(rng.randrange(9)))
            case 5 | 6:
                if (job := queue.take(0.01, lease=rng.choice((None, 0.02)))) is not None and rng.random() < 0.5:
                    job.ack()
                    done[int(job.data)] += 1
            case _:
                if (message := queue.receive(rng.choice((0, 0.01)))) is not None:
                    done[int(message.data)] += 1

    def anything(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        while len(done) < messages:
            try:
                one_call(rng, rng.choice(handles))
            except (QueueFullError, EndpointClosedError, LeaseExpiredError, ValueError):
                continue

    for task in [Task(anything, i) for i in range(8)]:
        task.result()
    gc.collect()
    with MessageQueue(endpoint) as last:
        for handle in handles:
            handle.close()
        done.update(int(message.data) for message in last.receive_many())
        last.unlink()
    assert set(done.values()) == {1}
    assert set(done) == sent

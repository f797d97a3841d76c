"""Work queues with many processes: each message goes to one of them; nobody sleeps beside a message, or beside room."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from msgq import stats
from msgq.common.stats.workqueue import QueueHandleInfo
from msgq.workqueue import MessageQueue
from tests.stress import queues
from tests.stress.channels import message
from tests.stress.process_group import ProcessGroup, finish
from tests.support import DEADLINE, LONGER, Child, Task, wait_asleep, wait_until

PAUSES = 2  # so often a busy machine may let a process wait; forgotten sleepers are more


def run(scene: ProcessGroup, name: str, kinds: list[str], senders: int, count: int, seed: int, **more: Any) -> None:
    """Let takers of these kinds, and senders, work until all is sent, and check that each message was taken once."""
    with MessageQueue(name) as queue:
        ordered = "take" not in kinds  # it gives messages back
        takers = scene.start_all([(queues.work, name, kind, seed + i, ordered) for i, kind in enumerate(kinds)])
        sources = scene.start_all([(queues.send, name, i, count, seed - i) for i in range(senders)])
        for source in sources:
            source.say("go")
        sent = [source.result() for source in sources]
        queues.end(queue, len(kinds))
        reports = [one.result() for one in takers]
        assert_queue_is_empty(queue, senders * count + len(kinds))
    check_each_message_taken_once(reports, senders, count)
    slow = sum(one["slow"] for one in sent), sum(one["late"] for one in reports)
    print("slow sends, late messages:", slow)
    assert sum(slow) <= PAUSES, "somebody slept beside a message, or beside room"


def check_each_message_taken_once(reports: list[dict[str, Any]], senders: int, count: int) -> None:
    """Each message of each sender was taken once."""
    for source in range(senders):
        got = Counter(itertools.chain.from_iterable(dict(one["got"]).get(source, []) for one in reports))
        assert [number for number, times in got.items() if times > 1] == [], "twice"
        assert got.keys() ^ set(range(count)) == set(), "lost"


def assert_queue_is_empty(queue: MessageQueue, sent: int | None = None) -> None:
    """Nothing is left, in no place and of nobody."""
    found = stats.queue(queue.name)
    assert (found.depth, found.in_flight, found.pending_slots, found.corrupt_slots, found.lost_slots) == (0, 0, 0, 0, 0)
    assert found.free_slots == found.max_messages
    assert found.sent == found.acknowledged
    assert found.received == found.acknowledged + found.returned
    assert sent is None or found.sent >= sent
    assert not [one for one in found.handles if one.waits or not one.participant.alive]


# ---- senders and takers ----


@pytest.mark.parametrize("max_messages", [1, 2])
def test_sleeping_senders_and_receivers_miss_no_wakeup(
    scene: ProcessGroup, endpoint: str, seed: int, max_messages: int
) -> None:
    """What: two senders and two takers share one or two places, so that both sides sleep all the time.

    Failure would mean: a wake is lost, or goes to one who does not use it.
    """
    MessageQueue(endpoint, max_messages=max_messages, max_message_size=queues.SIZE).close()
    run(scene, endpoint, ["receive", "receive"], 2, int(800 * LONGER), seed)


@pytest.mark.nightly
def test_queue_with_four_senders_and_four_consumers_keeps_order_of_each_sender(
    scene: ProcessGroup, endpoint: str, seed: int
) -> None:
    """Messages of mixed priorities; each sender's come in its order to each taker."""
    MessageQueue(endpoint, max_messages=64, max_message_size=queues.SIZE).close()
    run(scene, endpoint, ["receive", "many", "into", "iterate"], 4, int(3000 * LONGER), seed)


@pytest.mark.nightly
@pytest.mark.parametrize("max_messages", [1, 10, 200])
def test_consumers_with_different_receive_calls_lose_no_message(
    scene: ProcessGroup, endpoint: str, seed: int, max_messages: int
) -> None:
    """What: blocked receivers beside pollers, descriptors and coroutines; some give messages back.

    Why: those who watch must not use up the wake of one who takes.
    """
    MessageQueue(endpoint, max_messages=max_messages, max_message_size=queues.SIZE).close()
    run(scene, endpoint, list(queues.KINDS), 2, int(800 * LONGER), seed)


def test_64_messages_wake_64_sleeping_receivers_once_each(scene: ProcessGroup, endpoint: str) -> None:
    """What: 64 threads in four processes sleep, a handle each; 64 messages wake one each."""
    with MessageQueue(endpoint) as queue:
        children = scene.start_all([(queues.sleepers, endpoint, 16)] * 4)
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
        children = scene.start_all([(queues.drain, endpoint)] * 3)
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
        (taker,) = scene.start_all([(queues.take_best, endpoint, count)])
        for number in range(count):
            queue.send(number.to_bytes(4, "little"), 5, timeout=DEADLINE)
        assert taker.result() == []


# ---- those who disturb ----


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["poller", "fileno"])
def test_polling_processes_do_not_take_wakeups_from_blocked_receiver(
    scene: ProcessGroup, endpoint: str, seed: int, kind: str
) -> None:
    """What: two processes watch, and hesitate before they take; a third one is blocked, and gets messages at once."""
    count = int(30 * LONGER)
    with MessageQueue(endpoint) as queue:
        watchers = scene.start_all([(queues.take_late, endpoint, kind)] * 2)
        (taker,) = scene.start_all([(queues.work, endpoint, "receive", seed)])
        for number in range(count):
            wait_until(
                lambda: (
                    (count_sleeping_handles(queue, "receiving"), count_sleeping_handles(queue, "watching")) == (1, 2)
                )
            )
            queue.send(message(0, number, 10), 1)
        wait_until(lambda: stats.queue(endpoint).depth == 0)
        reports = finish(watchers)
        queues.end(queue, 1)
        reports.append(taker.result())
        check_each_message_taken_once(reports, 1, count)
        assert len(dict(reports[-1]["got"])[0]) > count * 2 / 3, "the blocked one was woken, too"
        assert_queue_is_empty(queue)


@pytest.mark.nightly
def test_interrupted_waiters_pass_wakeups_to_other_waiters(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: two processes wait and give up all the time, by time-outs and handlers that raise, also in the moment in
    which they are woken, and give back what they took; two others wait patiently.
    """
    with MessageQueue(endpoint, max_messages=4) as queue:
        fickle = scene.start_all([(queues.give_up, endpoint, seed + i) for i in range(2)])
        takers = scene.start_all([(queues.work, endpoint, "receive", seed, False) for _ in range(2)])
        count = int(1000 * LONGER)
        for number in range(count):
            queue.send(message(0, number, 10), 1, timeout=DEADLINE)
        wait_until(lambda: stats.queue(endpoint).depth + stats.queue(endpoint).in_flight == 0)
        print(finish(fickle))
        queues.end(queue, 2)
        reports = [taker.result() for taker in takers]
        check_each_message_taken_once(reports, 1, count)
        assert sum(report["late"] for report in reports) <= PAUSES
        assert_queue_is_empty(queue)


@pytest.mark.nightly
def test_stopped_queue_processes_do_not_block_other_processes(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: senders and takers are stopped at random moments; meanwhile this one sends and receives.

    Why: they may be stopped with a place held, with a message taken, or between a message and the wake for it.
    """
    rng = random.Random(seed)
    with MessageQueue(endpoint, max_messages=8, max_message_size=queues.SIZE) as queue:
        floods = scene.start_all([(queues.flood, endpoint, kind) for kind in ("send", "take", "send", "take")])
        mine = Counter[str]()
        for _ in range(int(40 * LONGER)):
            before = stats.queue(endpoint).received
            wait_until(lambda: stats.queue(endpoint).received > before + rng.randrange(200), interval=0)  # noqa: B023
            for flood in floods:
                flood.kill(signal.SIGSTOP)
            mine["take"] += len(queue.receive_many())
            for _ in range(100):
                queue.send(b"x", timeout=0)
                mine["take"] += queue.receive(0) is not None
            mine["send"] += 100
            for flood in floods:
                flood.kill(signal.SIGCONT)
        counts = mine
        for report in finish(floods):
            counts.update(report)
        counts["take"] += len(queue.receive_many())
        assert counts["send"] == counts["take"]
        assert_queue_is_empty(queue)


@pytest.mark.parametrize("count", [50, pytest.param(int(500 * LONGER), marks=pytest.mark.nightly)])
def test_handles_opened_and_closed_during_traffic_lose_no_message(
    scene: ProcessGroup, endpoint: str, seed: int, count: int
) -> None:
    """What: four processes open the queue, send, take, leave jobs undone and close it, again and again."""
    with MessageQueue(endpoint, max_messages=4 * count, max_message_size=queues.SIZE) as queue:  # never full
        children = scene.start_all([(queues.come_and_go, endpoint, i, count, seed + i) for i in range(4)])
        assert [child.hear() for child in children] == ["sent"] * 4
        wait_until(lambda: stats.queue(endpoint).depth + stats.queue(endpoint).in_flight == 0)
        reports = []
        for _ in children:
            queues.end(queue, 1)
        reports = [child.result() for child in children]
        check_each_message_taken_once(reports, 4, count)
        found = stats.queue(endpoint)
        assert found.returned > 0
        assert_queue_is_empty(queue)
        assert max(one.row for one in found.handles) < 8, "rows are used again"


def test_many_handles_and_threads_in_one_process_lose_no_message(endpoint: str, seed: int) -> None:
    """What: threads with handles of their own, and threads that share one, send and take at the same time."""
    count, histories = int(500 * LONGER), [queues.History(ordered=False) for _ in range(6)]
    with MessageQueue(endpoint, max_messages=5, max_message_size=queues.SIZE) as shared:
        own = [MessageQueue(endpoint) for _ in range(3)]

        def send(queue: MessageQueue, source: int) -> None:
            for number in range(count):
                queue.send(message(source, number, 20), 1, timeout=DEADLINE)

        def take(queue: MessageQueue, into: queues.History, kind: str) -> None:
            for _ in queues.taker(kind, queue, into, random.Random(seed)):
                if into.ends:
                    return

        senders = [Task(send, queue, i) for i, queue in enumerate((shared, shared, own[0]))]
        kinds = ("receive", "take", "into", "poller", "take", "receive")
        handles = (shared, shared, own[0], own[1], own[1], own[2])
        takers = [Task(take, *one) for one in zip(handles, histories, kinds, strict=True)]
        for task in senders:
            task.result()
        queues.end(shared, len(takers))
        for task in takers:
            task.result()
        check_each_message_taken_once([one.report() for one in histories], 3, count)
        assert_queue_is_empty(shared)
        for queue in own:
            queue.close()


# ---- interrupted ----


def test_sigint_in_each_wait_raises_keyboard_interrupt(scene: ProcessGroup, endpoint: str) -> None:
    """Each wait ends with KeyboardInterrupt, at once, and leaves nothing behind; the handle can be used again."""
    with MessageQueue(endpoint, max_messages=1) as queue:
        child = scene.start_child(queues.interrupted, endpoint)
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

"""Sleepers of a work queue when those die, or stop, who were to wake them or were woken in their slot."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import pytest

from msgq.impl.base.clock import time_ns
from msgq.workqueue import MessageQueue
from tests.crash.harness import WRITES, Driver, points_of
from tests.crash.killing import end, run_in_killed_child
from tests.crash.queues import File, QueuePlace
from tests.support import DEADLINE, LONGER, Task, run_child, wait_asleep, wait_until

LOOK = 1.1  # seconds that a message, or room, waits at most while somebody sleeps who may have it


class Lateness(threading.Thread):
    """Measures how late the machine is, which is not the library's fault."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            time.sleep(0.01)
            self.most = max(self.most, time.monotonic() - before - 0.01)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def allows(self, seconds: float) -> bool:
        """Whether so long a wait was one of LOOK at most, on a machine that had time."""
        print(f"waited {seconds:.3f} s, at most {self.most:.3f} s late")
        return seconds <= LOOK + 5 * self.most


def time_success(call: Callable[[], Any]) -> float:
    """Return when a call has succeeded, by the monotonic clock."""
    assert call() is not False
    return time.monotonic()


def receive(handle: MessageQueue) -> bool:
    return handle.receive(DEADLINE) is not None


def send(handle: MessageQueue) -> bool:
    handle.send(b"", timeout=DEADLINE)
    return True


#: For each waker: the victim's work, the point behind which no process may be left asleep, the number of messages
#: before, and the condition that the sleeper waits for.
SLOT_STATE = "&h->parts.slot_states"
WAKERS: dict[str, tuple[str, str, int, Callable[[MessageQueue], bool]]] = {
    "send": ("join ready arm send:0", f"mq_queue_commit_message: stored {SLOT_STATE}[slot]", 0, receive),
    "nack": (
        "join take:1 ready arm nack",
        "mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]",
        1,
        receive,
    ),
    "receive": (
        "join ready arm receive:1",
        "mq_queue_free_taken_slot: exchanged &h->parts.slot_states[delivery->slot]",
        1,
        send,
    ),
}


def begin(where: QueuePlace, scene: str, at: int, number: int) -> tuple[Driver, Task, float]:
    """Have somebody sleep in a queue of one slot, since the time that is returned, and its waker at work."""
    operations, _, before, wish = WAKERS[scene]
    where.send(*range(before))
    victim = where.driver(operations, WRITES, at, number)
    victim.wait_until_ready()
    task = Task(time_success, partial(wish, where.queue))
    task.wait_asleep()
    since = time.monotonic()
    victim.proceed()
    return victim, task, since


def first_step(endpoint: str, scene: str) -> int:
    """Return the number of the step behind which nobody may be left asleep."""
    with QueuePlace(f"{endpoint}-known", slots=1) as known:
        victim, task, _ = begin(known, scene, 0, signal.SIGKILL)
        task.result()
        return points_of(victim.end()).index(WAKERS[scene][1]) + 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("scene", WAKERS)
def test_queue_sleeper_wakes_after_death_or_stop_of_its_waker(endpoint: str, scene: str, number: int) -> None:
    """What: a message, or room, is there, and its waker does not come to wake; somebody sleeps.

    Why: sleepers look once a second, for exactly that.

    Failure would mean: somebody sleeps beside what it waits for until the next message comes.
    """
    first = first_step(endpoint, scene)
    sleepers: list[tuple[Task, float]] = []
    with contextlib.ExitStack() as stack, Lateness() as lateness:
        for at in range(first, first + 5):
            where = stack.enter_context(QueuePlace(f"{endpoint}-{at}", slots=1))
            victim, task, since = begin(where, scene, at, number)
            sleepers.append((task, since))
            assert number == signal.SIGKILL or victim.stops() or at > first
            assert number == signal.SIGSTOP or victim.process.wait() == -signal.SIGKILL or at > first
        waited = [task.result() - since for task, since in sleepers]
    assert lateness.allows(max(waited)), waited


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize(("operation", "before", "wish"), [("wait:30000", 0, receive), ("waitsend:30000:0", 1, send)])
def test_message_reaches_next_sleeper_after_woken_sleeper_dies_or_stops(
    slot: QueuePlace, number: int, operation: str, before: int, wish: Callable[[MessageQueue], bool]
) -> None:
    """What: three sleep; the first is woken and does nothing any more.

    Why: of those who sleep the lowest row is woken, and a wake is used up.

    Failure would mean: one dead process makes the others sleep on.
    """
    with QueuePlace(f"{slot.endpoint}-full", slots=1) as where, Lateness() as lateness:
        where.send(*range(before))
        victim = where.driver(f"join ready arm {operation}", "call: after sleep", 1, number)
        victim.wait_until_ready()
        victim.proceed()
        wait_asleep(victim.pid)
        tasks = [Task(time_success, partial(wish, handle)) for handle in (where.handle(), where.handle())]
        for task in tasks:
            task.wait_asleep()
        since = time.monotonic()
        assert (where.other.receive(0) is not None) if before else where.other.send(b"") is None
        assert victim.stops() == (number == signal.SIGSTOP)
        wait_until(lambda: not all(task.is_alive() for task in tasks))
        waited = min(task.result() for task in tasks if not task.is_alive()) - since
        assert (where.other.receive(0) is not None) if before else where.other.send(b"") is None
        for task in tasks:
            task.result()
    assert lateness.allows(waited)


def test_interrupted_sleeper_passes_its_wake_to_another_sleeper(slot: QueuePlace) -> None:
    """What: two sleep; the first is woken, and leaves without the message, as one whom a signal ended.

    Failure would mean: the other one sleeps on until it looks for itself, which takes a second.
    """

    leaver = slot.driver("join giveup:30000", "*never*")
    wait_until(lambda: slot.file.bits())
    wait_asleep(leaver.pid)
    task = Task(receive, slot.handle())  # in a higher row: it is not woken first

    def wake() -> None:
        slot.other.send(b"")
        leaver.end()

    assert task.is_woken_by(wake)
    assert task.result()
    assert slot.file.is_as_new()


def test_recovery_of_slot_wakes_sleeping_sender(slot: QueuePlace) -> None:
    """Else it sleeps on until it looks for itself, which takes a second."""

    with QueuePlace(f"{slot.endpoint}-full", slots=1) as where:
        holder = where.waiting("join hold")
        finder = where.driver("join ready sweep", "*never*")
        finder.wait_until_ready()
        task = Task(send, where.queue)

        def find() -> None:  # only this, because the sender looks for dead processes once a second
            holder.kill()
            finder.proceed()
            finder.end()

        assert task.is_woken_by(find)
        assert task.result()


# ---- 64 sleepers ----

PROCESSES, THREADS = 8, 8
KILLS = 100


def receive_for_ever(name: str) -> None:
    """Have eight threads, each with a handle of its own, receive whatever comes."""

    def receive() -> None:
        with MessageQueue(name, 0) as queue:
            while True:
                queue.receive()

    for _ in range(THREADS):
        threading.Thread(target=receive, daemon=True).start()
    while True:
        signal.pause()


def oldest(name: str, slots: int) -> float:
    """Return for how many seconds the oldest message has waited."""
    file, now = File(name, slots), time_ns()
    waiting = [file.sent_time(slot) for slot, word in enumerate(file.slot_states()) if word >> 63]
    return max((now - sent for sent in waiting), default=0) / 1e9


def kill_stopped_sleepers(name: str, slots: int, seed: int) -> dict[str, float]:
    """Child: have 64 sleepers; stop half of them, send a few messages, and kill some of those that were stopped.

    Returns for how many seconds a message has waited at most, how late the machine was, and how many were sent.
    """
    rng, most, sent = random.Random(seed), 0.0, 0
    pids = [run_in_killed_child(receive_for_ever, name) for _ in range(PROCESSES)]
    with MessageQueue(name, 0) as queue, Lateness() as lateness:
        for _ in range(int(KILLS * LONGER)):
            struck = rng.sample(range(PROCESSES), 4)
            for each in struck:
                os.kill(pids[each], signal.SIGSTOP)
            for _ in range(rng.randrange(1, 4)):
                queue.send(b"", timeout=DEADLINE)
                sent += 1
            end(pids[struck[0]])
            until = time.monotonic() + 2 * LOOK
            while queue.current_messages and time.monotonic() < until:
                most = max(most, oldest(name, slots))
                time.sleep(0.002)
            pids[struck[0]] = run_in_killed_child(receive_for_ever, name)
            for each in struck[1:]:
                os.kill(pids[each], signal.SIGCONT)
        wait_until(lambda: not any(File(name, slots).slot_states()))
        late = lateness.most
    for pid in pids:
        end(pid)
    return {"waited": most, "late": late, "sent": sent}


@pytest.mark.nightly
def test_queue_with_64_sleepers_leaves_no_message_waiting(endpoint: str, seed: int) -> None:
    """What: 64 handles sleep, each message wakes one of them; processes are killed and stopped all the while.

    Why: a wake may go to somebody who does not live to see it.

    Failure would mean: a message waits although somebody sleeps who would take it.
    """
    slots = 8
    with MessageQueue(endpoint, max_messages=slots, max_message_size=8) as queue:
        try:
            result = run_child(kill_stopped_sleepers, endpoint, slots, seed)
            print(result)
            assert result["waited"] <= LOOK + 5 * result["late"]
            MessageQueue(endpoint, 0).close()
            assert File(endpoint, slots).is_as_new()
        finally:
            queue.unlink()

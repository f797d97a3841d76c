"""Who wants to be told of a message that comes to an empty queue, when those die, or stop, who should tell."""

from __future__ import annotations

import signal
from typing import NamedTuple

import pytest

from msgq.impl.workqueue.core import QueueNotification
from tests.crash.queues import Place, life_goes_on, program, read_driver_points, slot, until_ready, wait_for_driver_kill
from tests.crash.victims import Driver, state
from tests.support import asleep, wait_until

__all__ = ["program", "slot"]


class ProcessGroup(NamedTuple):
    """What the victim does, after "arm" step by step."""

    operations: str
    taken: bool = False  # a message is there at first, which it takes, or a former one that died with it
    later: int = 0  # messages that come when it sleeps, or is dead


TELLERS = {
    "send": ProcessGroup("join ready arm send:200"),
    "send many": ProcessGroup("join ready arm many:2:200"),
    "nack": ProcessGroup("join take:1 ready arm nack", taken=True),
    "close with job": ProcessGroup("join take:1 ready arm leave", taken=True),
    "wait and take one of two messages": ProcessGroup("join ready arm wait:5000", later=2),
    "recover": ProcessGroup("enter ready arm sweep", taken=True),
    "join with recovery": ProcessGroup("ready arm join", taken=True),
}


def be_told_no_more(slot: Place, notice: QueueNotification) -> None:
    notice.close()
    slot.other.notify(None)  # the wish is the handle's


def begin(slot: Place, scene: ProcessGroup, at: int, number: int = signal.SIGKILL) -> tuple[QueueNotification, Driver]:
    """Have somebody who wants to be told, and a victim that has come to its steps, and nothing to take."""
    notice = QueueNotification(slot.other)
    slot.send(*[0] * scene.taken)
    if scene.taken and "take" not in scene.operations:
        slot.killed("join take:1")
    victim = slot.driver(scene.operations, at=at, number=number)
    until_ready(victim)
    assert not any(word >> 63 for word in slot.slot_states())
    notice.consume()
    victim.proceed()
    return notice, victim


def kill(slot: Place, scene: ProcessGroup, at: int) -> list[str]:
    notice, victim = begin(slot, scene, at)
    if scene.later:
        wait_until(lambda: state(victim.pid) == "Z" or (slot.bits() and asleep(victim.pid)))
        victim.process.send_signal(signal.SIGSTOP)  # so that all of them are there when it wakes
        slot.send(*range(scene.later))
        victim.go_on()
    lines = wait_for_driver_kill(victim, at)
    slot.handle()  # it looks for the dead, and stays: who leaves tells in any case
    left = [word for word in slot.slot_states() if word >> 63]
    assert left or at or scene.later == 0
    assert notice.consume() or not left, "a message is there, and nobody was told"
    be_told_no_more(slot, notice)
    slot.drain()
    life_goes_on(slot)
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", TELLERS)
def test_notifying_sender_killed_at_each_step_leaves_notification_to_recovery(slot: Place, scene: str) -> None:
    """What: the victim dies at each step; then somebody looks for the dead.

    Why: a sender that finds a message in the queue leaves it to the one before it to tell, who may be dead by then.

    Failure would mean: a message is there, nobody is told, and all later senders think that somebody was.
    """
    with slot.another(0) as trial:
        names = kill(trial, TELLERS[scene], 0)
    problems = []
    for at, name in enumerate(names, 1):
        with slot.another(at) as round_:
            try:
                kill(round_, TELLERS[scene], at)
            except AssertionError as problem:  # all of them: the report shows which steps fail
                problems.append(f"after step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


@pytest.mark.parametrize("scene", ["send", "nack", "close with job"])
def test_notifying_sender_stopped_at_each_step_delays_no_other_notification(slot: Place, scene: str) -> None:
    """What: the victim stops at each step; what it sent is received, and another one sends.

    Failure would mean: whoever is told by messages to an empty queue waits for one that does not run.
    """
    with slot.another(0) as trial:
        steps = len(kill(trial, TELLERS[scene], 0))
    for at in range(1, steps + 1):
        with slot.another(at) as round_:
            notice, victim = begin(round_, TELLERS[scene], at, signal.SIGSTOP)
            assert victim.wait_stopped_or_ended()
            for number in range(1000, 1010):
                round_.drain()
                notice.consume()
                round_.send(number)
                assert notice.consume(), f"step {at}"
            victim.go_on()
            victim.ended(0)
            round_.drain()
            be_told_no_more(round_, notice)


def test_new_owner_of_row_sends_pending_notification(slot: Place) -> None:
    """It tells, though it looks for nobody; afterwards nothing would show that there was something to tell."""
    notice = QueueNotification(slot.other)
    slot.driver("join arm send:200", "mq_queue_commit_*: stored &h->parts.slot_states*").ended(-signal.SIGKILL)
    assert not notice.consume()
    slot.kill_free_rows()
    slot.waiting("enter")
    assert notice.consume()
    be_told_no_more(slot, notice)

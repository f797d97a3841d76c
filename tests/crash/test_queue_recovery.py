"""Handles of work queues that find the slots, rows and bits of dead and of stopped ones."""

from __future__ import annotations

import signal

import pytest

from msgq import stats
from tests.crash.harness import ACCESSES, OFTEN, Step, at_each_step, message, numbers_said
from tests.crash.queues import PRIORITIES, SLOTS, Got, QueuePlace, in_order
from tests.support import DEADLINE, wait_asleep, wait_until


def test_full_or_empty_queue_recovers_slots_of_dead_processes(slot: QueuePlace) -> None:
    """Somebody who has a handle looks when there is no room, or nothing to take; nobody needs to come for that."""
    slot.send(*range(SLOTS))
    slot.killed("join take:2")
    assert sorted(slot.queue.receive(DEADLINE).data[0] for _ in range(SLOTS)) == [*range(SLOTS)]
    slot.killed("join hold hold")
    for number in range(SLOTS):
        slot.queue.send(message(number, 24), number % PRIORITIES, timeout=DEADLINE)
    assert [number for number, _ in slot.drain()] == in_order(range(SLOTS))


def test_recovery_clears_sleeper_bits_of_dead_process(slot: QueuePlace) -> None:
    slot.killed("join lie watch crave notify")
    assert len(slot.file.bits()) == 4
    slot.look()
    assert not slot.file.bits()


def test_reused_row_does_not_inherit_sleeper_bits_or_counts(slot: QueuePlace) -> None:
    slot.killed("join send:0 lie watch crave notify")
    slot.kill_free_rows()
    heir = slot.waiting("join send:1 send:2")
    assert not slot.file.bits(), "it lives, and does not sleep"
    assert [handle.sent for handle in stats.queue(slot.endpoint).handles if handle.participant.pid == heir.pid] == [2]


def test_closed_handle_clears_its_sleeper_bits(slot: QueuePlace) -> None:
    slot.waiting("join lie watch crave notify leave")
    assert not slot.file.bits()


@pytest.mark.parametrize("former", ["join hold", "join send:0 take:1"], ids=["held", "taken"])
def test_recovery_stopped_during_row_reuse_keeps_slots_of_new_owner(slot: QueuePlace, former: str) -> None:
    """What: one who has just found the first slot of a dead one stops; somebody takes the dead one's row, and slots.

    Why: what is known of an owner is not known of the next one in its row.

    Failure would mean: a living one's slots are given to others while it writes to them.
    """
    victim = slot.driver("join ready arm sweep", "mq_queue_*: exchanged &h->parts.slot_states*", 1, signal.SIGSTOP)
    victim.wait_until_ready()
    slot.killed(former)
    victim.proceed()
    assert victim.stops()
    slot.kill_free_rows()
    heir = slot.waiting("join hold hold hold")
    words = slot.file.slot_states()
    victim.go_on()
    victim.end()
    assert slot.file.slot_states() == words, "it lives"
    heir.kill()
    slot.look()
    assert [number for number, _ in slot.drain()] == [0] * ("send" in former)
    slot.life_goes_on()


def test_lease_of_stopped_consumer_expires_and_message_is_redelivered(slot: QueuePlace) -> None:
    """What: a taker stops at each access before, in and after its lease; others get the message when that is over.

    Why: a lease is for takers that live and do not go on.

    Failure would mean: a message waits for a stopped process, or two have acknowledged it.
    """

    def act(step: Step) -> list[str]:
        with slot.another(step.at) as where:
            where.send(0)
            victim = where.driver("join arm take:1:1 disarm ready ack", ACCESSES, step.at, signal.SIGSTOP)
            got: list[Got] = []
            if step.at:
                assert victim.stops()
                got = wait_until(where.look_and_drain) if where.file.lease(0) else where.look_and_drain()
                assert got == [Got(0, 2)] or not where.file.lease(0)
                where.pass_laps(missing=1)
                victim.go_on()
            victim.proceed()
            lines = victim.end()
            got += where.drain()
            assert [number for number, _ in got] + numbers_said(lines, "got") == [0]
            assert len(numbers_said(lines, "lost")) == (len(numbers_said(lines, "took")) if got else 0), lines
            where.life_goes_on()
        return lines

    at_each_step(act, ["mq_queue_set_job_lease: stored &h->parts.slot_headers[delivery->slot].lease"], OFTEN)


def test_second_sender_wakes_other_sleeper_while_first_sender_is_stopped(slot: QueuePlace) -> None:
    """What: two sleep; a sender stops while it wakes one of them, and another sender comes.

    Why: the second one cannot know whether the first one stopped before its wake or behind it: it wakes that one, too.

    Failure would mean: of two messages that are sent at a time one waits for a second, beside a receiver that sleeps.
    """
    sleepers = [slot.driver("join ready wait:60000", "*never*") for _ in range(2)]
    for sleeper in sleepers:
        sleeper.wait_until_ready()
        sleeper.proceed()
        wait_asleep(sleeper.pid)
    victim = slot.stopped("join arm send:0", "mq_eventcount_notify_mp: exchanged word")
    slot.send(1)
    got = [number for sleeper in sleepers for number in numbers_said(sleeper.end(), "got")]
    assert sorted(got) == [0, 1]
    victim.go_on()
    victim.end()
    slot.life_goes_on()

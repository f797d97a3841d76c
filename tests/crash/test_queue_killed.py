"""Processes that are killed at each step of what they do to a work queue; one look later nothing may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from msgq import stats
from msgq.errors import IpcError
from tests.crash.queues import (
    BEFORE,
    PRIORITIES,
    SLOTS,
    Place,
    in_order,
    life_goes_on,
    message,
    program,
    read_driver_numbers,
    read_driver_points,
    slot,
    wait_for_driver_kill,
)
from tests.support import DEADLINE

__all__ = ["program", "slot"]


class ProcessGroup(NamedTuple):
    """What happens before, and what the victim does, after "arm" step by step."""

    operations: str
    before: int = 0  # messages that come while the victim says "ready"
    sure: int = 0  # messages that it sends before "arm"; their numbers go up from 200
    former: str = ""  # what another one did, who was killed then
    heir: bool = False  # the victim gets the row of that one, else one that was never used
    slots: int = SLOTS


SENDERS = {
    "send": ProcessGroup("join ready send:200 arm send:201 send:202", before=2, sure=1),
    "send many messages": ProcessGroup("join ready arm many:3:200", before=1),
    "send to another block": ProcessGroup("join ready arm send:200 send:201", before=66, slots=70),
    "send with sleeper": ProcessGroup("join ready lie arm send:200 send:201", before=1),
    "send with watcher": ProcessGroup("join ready watch arm send:200", before=1),
    "send with notification request": ProcessGroup("join notify ready arm send:200 send:201", before=0),
    "send to filled queue with notification request": ProcessGroup("join notify ready arm send:200", before=2),
    "send without room": ProcessGroup("join ready arm send:200", before=SLOTS),
    "send with delay": ProcessGroup("join ready arm senddelayed:200 senddelayed:201", before=2),
    "send with delay and sleeper": ProcessGroup("join ready lie watch arm senddelayed:200", before=1),
    "send to slot of dead process": ProcessGroup("enter ready arm send:200", before=SLOTS - 1, former="join hold"),
    "wait for room": ProcessGroup("join ready arm waitroom:5", before=SLOTS),
    "wait for room, with handoff": ProcessGroup("join ready arm waitsend:5:200", before=SLOTS),
    "send, with handoff": ProcessGroup("join ready arm waitsend:5:200", before=1),
    "join": ProcessGroup("ready arm join send:200", before=1),
    "join after death of other process": ProcessGroup(
        "ready arm join send:200", before=1, former="join notify lie crave watch hold", heir=True
    ),
    "leave": ProcessGroup("join ready lie send:200 hold arm leave", before=1, sure=1),
}

#: The steps that must be among the points, or this test has lost its subject.
NAMED = {
    "send": [
        "mq_queue_claim_free_slot: exchanged word",
        "mq_queue_claim_free_slot: counted &h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS]",
        "fill: half copied to payload",
        "mq_queue_write_slot_header: stored &header->key",
        "mq_queue_commit_message: stored &h->parts.slot_states[slot]",
        "mq_queue_commit_message: counted &h->parts.queue->ready_count",
    ],
    "send with sleeper": ["mq_eventcount_notify_mp: woke mq_futex_word(word)"],
    "send with notification request": ["mq_queue_notify_not_empty: counted &queue->notify_seq"],
    "send to another block": ["mq_queue_claim_free_slot: counted &h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS]"],
    "wait for room": [
        "mq_eventcount_prepare_wait_mp: exchanged word",
        "mq_queue_set_row_bit: set &bits->word[row / 64]",
        "doze: slept on a word",
        "mq_queue_clear_row_bit: cleared &bits->word[row / 64]",
    ],
    "join after death of other process": [
        "mq_queue_clear_row_bit: cleared &bits->word[row / 64]",
        "mq_row_table_occupy: stored &row->generation",
        "mq_file_lock_close: gave back lock",
        "mq_queue_reclaim_slots: exchanged &h->parts.slot_states[slot]",
    ],
    "send with delay": [
        "mq_queue_advance_take_number: stored &h->own_row->take_count",
        "mq_queue_commit_delayed_message: stored &h->parts.slot_headers[slot].lease",
        "mq_queue_commit_delayed_message: stored &h->parts.slot_states[slot]",
        "mq_queue_announce_delay: counted &h->parts.queue->delay_count",
    ],
    "send with delay and sleeper": ["mq_eventcount_notify_mp: woke mq_futex_word(word)"],
    "take, nack with delay": [
        "mq_queue_delay_taken_message: exchanged word",
        "mq_queue_delay_taken_message: stored &header->lease",
        "mq_queue_announce_delay: counted &h->parts.queue->delay_count",
    ],
    "recover due messages": ["mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]"],
    "receive": [
        "mq_queue_take_message: exchanged &h->parts.slot_states[best.slot]",
        "mq_queue_read_slot_header: stored &header->deliveries",
        "copy: half copied from payload",
        "mq_queue_free_taken_slot: exchanged &h->parts.slot_states[delivery->slot]",
    ],
    "wait, with handoff": [
        "mq_queue_wait_begin: counted &h->parts.queue->last_ticket",
        "mq_queue_prepare_sleep: stored &h->own_row->oldest_ticket[role]",
        "mq_queue_request_handoff: exchanged handoff",
        "mq_queue_end_handoff: exchanged &parts->queue->handoff_ticket[role]",
    ],
    "receive with waiting sender": ["mq_eventcount_notify_mp: woke mq_futex_word(word)"],
    "take, nack": ["mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]"],
    "take with lease": ["mq_queue_set_job_lease: stored &h->parts.slot_headers[delivery->slot].lease"],
    "recover dead processes": [
        "mq_queue_reclaim_slots: exchanged &h->parts.slot_states[slot]",
        "mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]",
        "mq_queue_clear_row_bit: cleared &bits->word[row / 64]",
    ],
}

#: Behind these a message is not in the queue any more, though the victim has not said so.
GONE = (
    "mq_queue_free_taken_slot: ",
    "mq_queue_wake_sender: ",
    "mq_eventcount_notify_mp: ",
    "mq_queue_add_to_counter: ",
)


def at_each_step(slot: Place, scene: str, slots: int, kill: Callable[[Place, int, str], list[str]]) -> None:
    """Have the victim killed at each step, in a queue of its own; report all that fail. At 0 it lives."""
    with slot.another(0, slots) as trial:
        names = kill(trial, 0, "")
    for name in NAMED.get(scene, []):
        assert name in names, f"no such step any more; the steps are {names}"
    problems = []
    for at, name in enumerate(names, 1):
        with slot.another(at, slots) as round_:
            try:
                kill(round_, at, name)
            except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
                problems.append(f"after step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


def run(slot: Place, scene: ProcessGroup, at: int) -> tuple[list[int], list[str]]:
    """Play a scene. Returns the numbers of the messages that came before the victim's steps, and what it said."""
    assert not slot.drain(), "both remember now that nothing is there"
    if scene.former:
        slot.killed(scene.former)
    if scene.heir:
        slot.kill_free_rows()
    victim = slot.driver(scene.operations, at=at)
    victim.wait_until_ready()
    before = [*range(BEFORE, BEFORE + scene.before)]
    slot.send(*before)
    victim.proceed()
    return before, wait_for_driver_kill(victim, at)


def kill_sender(slot: Place, scene: ProcessGroup, at: int) -> list[str]:
    before, lines = run(slot, scene, at)
    slot.look()
    assert not slot.bits(), "bits of the dead"
    rest = slot.drain()
    own = sorted({number for number, _ in rest} - {*before})
    assert own == [*range(200, 200 + len(own))], own
    assert len(own) >= max(scene.sure, len(read_driver_numbers(lines, "sent"))), f"{own}, and it had sent more: {lines}"
    assert [number for number, _ in rest] == in_order([*before, *own])
    assert {deliveries for _, deliveries in rest} <= {1}
    life_goes_on(slot)
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", SENDERS)
def test_queue_sender_killed_at_each_step_leaves_usable_queue(slot: Place, scene: str) -> None:
    """What: the victim dies at each of its points in turn. Others, who had just looked in vain, look once and receive.

    Why: a sender may die anywhere, and nobody has a say in when.

    Failure would mean: a message that was sent is lost, torn, there twice, or out of order; or a slot is lost, or a
    bit of the dead takes the wakes of the living.
    """
    what = SENDERS[scene]
    at_each_step(slot, scene, what.slots, lambda where, at, _: kill_sender(where, what, at))


RECEIVERS = {
    "receive": ProcessGroup("join ready arm receive:3", before=4),
    "receive from two blocks": ProcessGroup("join ready arm receive:2", before=68, slots=70),
    "receive from empty queue": ProcessGroup("join ready arm receive:1"),
    "receive with waiting sender": ProcessGroup("join crave ready arm receive:2", before=3),
    "take, acknowledge": ProcessGroup("join ready arm take:3 ack", before=4),
    "take, nack": ProcessGroup("join ready arm take:3 nack", before=4),
    "take, nack with delay": ProcessGroup("join ready arm take:3 nackdelayed", before=4),
    "take with lease, nack with delay": ProcessGroup("join ready arm lease:2:100000 nackdelayed", before=3),
    "recover due messages": ProcessGroup(
        "enter ready arm sweep", before=2, former="join send:10 send:11 take:2 nackdelayed"
    ),
    "nack with notification request": ProcessGroup("join notify lie ready take:1 arm nack", before=2),
    "take with lease": ProcessGroup("join ready arm lease:2:100000 ack", before=3),
    "wait until timeout": ProcessGroup("join ready arm wait:5"),
    "wait": ProcessGroup("join ready arm wait:5", before=2),
    "wait with notification request of others": ProcessGroup("join notify ready arm wait:5", before=3),
    "wait, with handoff": ProcessGroup("join ready arm wait:5:2", before=2),
    "wait until timeout, with handoff": ProcessGroup("join ready arm wait:5:2"),
    "give up": ProcessGroup("join ready arm giveup:1", before=1),
    "leave": ProcessGroup("join ready take:2 lie arm leave", before=4),
    "recover dead processes": ProcessGroup(
        "enter ready arm sweep", before=2, former="join send:10 send:11 send:12 take:2 hold lie:2 notify crave watch"
    ),
    "join after death of other process": ProcessGroup(
        "ready arm join", before=2, former="join send:10 send:11 take:2 hold lie notify", heir=True
    ),
}


def kill_receiver(slot: Place, scene: ProcessGroup, at: int, name: str) -> list[str]:
    before, lines = run(slot, scene, at)
    formers = [*range(10, 10 + scene.former.count("send"))]
    sent = formers + before
    slot.look()
    assert not slot.bits(), "bits of the dead"
    rest, got, took = slot.drain(), read_driver_numbers(lines, "got"), read_driver_numbers(lines, "took")
    numbers = [number for number, _ in rest]
    assert not {*numbers} & {*got}, f"{got} come again: {numbers}"
    missing = {*sent} - {*numbers} - {*got}
    assert len(missing) <= name.startswith(GONE), f"lost {missing}"
    for number, deliveries in rest:
        least = 2 if number in took + in_order(formers)[:2] else 1
        assert least <= deliveries <= 2, f"{number} came for the {deliveries}th time"
    life_goes_on(slot)
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", RECEIVERS)
def test_queue_receiver_killed_at_each_step_leaves_usable_queue(slot: Place, scene: str) -> None:
    """What: the victim dies while it receives, takes, acknowledges, gives back, waits, leaves, and brings back what
    another one had who died before it.

    Why: what it has in hand is in the queue until it says otherwise.

    Failure would mean: a message is lost that nobody received, or comes again that somebody acknowledged; or it does
    not come back to its slot in the order.
    """
    what = RECEIVERS[scene]
    at_each_step(slot, scene, what.slots, lambda where, at, name: kill_receiver(where, what, at, name))


def test_full_or_empty_queue_recovers_slots_of_dead_processes(slot: Place) -> None:
    """Somebody who has a handle looks when there is no room, or nothing to take; nobody needs to come for that."""
    slot.send(*range(SLOTS))
    slot.killed("join take:2")
    assert sorted(slot.queue.receive(DEADLINE).data[0] for _ in range(SLOTS)) == [*range(SLOTS)]
    slot.killed("join hold hold")
    for number in range(SLOTS):
        slot.queue.send(message(number), number % PRIORITIES, timeout=DEADLINE)
    assert [number for number, _ in slot.drain()] == in_order(range(SLOTS))


def test_recovery_clears_sleeper_bits_of_dead_process(slot: Place) -> None:
    slot.killed("join lie watch crave notify")
    assert len(slot.bits()) == 4
    slot.look()
    assert not slot.bits()


def test_reused_row_does_not_inherit_sleeper_bits_or_counts(slot: Place) -> None:
    slot.killed("join send:0 lie watch crave notify")
    slot.kill_free_rows()
    heir = slot.waiting("enter send:1 send:2")
    assert not slot.bits(), "it lives, and does not sleep"
    assert [handle.sent for handle in stats.queue(slot.endpoint).handles if handle.participant.pid == heir.pid] == [2]


def test_consumer_without_row_lock_is_alive_until_its_death(slot: Place) -> None:
    """What: the file system has no locks of rows; then others ask for the process and its start time.

    Failure would mean: the message of a living consumer is given to others.
    """
    slot.send(0)
    consumer = slot.waiting("unlockable join take:1")
    slot.look()
    assert not slot.drain(), "it lives"
    consumer.process.kill()
    consumer.process.wait()
    assert slot.look_and_drain() == [(0, 2)]


def test_closed_handle_clears_its_sleeper_bits(slot: Place) -> None:
    slot.waiting("join lie watch crave notify leave")
    assert not slot.bits()

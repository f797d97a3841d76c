"""Processes that are stopped (SIGSTOP) at each access to a work queue: nobody else waits for them."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from msgq.errors import IpcError, SegmentError
from tests.crash.queues import (
    BEFORE,
    LAPS,
    OTHER,
    SLOTS,
    Got,
    Place,
    in_order,
    life_goes_on,
    program,
    read_driver_numbers,
    read_driver_points,
    slot,
)
from tests.support import wait_asleep, wait_until

__all__ = ["program", "slot"]

OFTEN = 4  # times that the victim stops at points of the same name: it looks at hundreds of rows, for example


class ProcessGroup(NamedTuple):
    """What happens before, and what the victim does, after "arm" step by step."""

    operations: str
    before: int = 0  # messages that come while the victim says "ready"
    own: int = 0  # messages that it sends; their numbers go up from 200
    former: str = ""  # what another one did, who was killed then


SCENES = {
    "send": ProcessGroup("join ready arm send:200 send:201", before=1, own=2),
    "send many messages": ProcessGroup("join ready arm many:3:200", own=3),
    "send with sleeper": ProcessGroup("join lie ready arm send:200 leave", own=1),
    "send with notification request": ProcessGroup("join notify ready arm send:200 leave", before=1, own=1),
    "receive": ProcessGroup("join ready arm receive:2", before=3),
    "take, acknowledge": ProcessGroup("join ready arm take:2 ack", before=3),
    "take, nack": ProcessGroup("join ready arm take:2 nack", before=3),
    "wait": ProcessGroup("join ready arm wait:1", before=1),
    "give up": ProcessGroup("join ready arm giveup:1", before=1),
    "wait for room": ProcessGroup("join ready arm waitroom:1", before=1),
    "join": ProcessGroup("ready arm join", before=1),
    "leave": ProcessGroup("join ready take:2 hold lie arm leave", before=3),
    "recover dead processes": ProcessGroup(
        "join ready arm sweep", before=1, former="enter send:10 send:11 take:1 hold lie notify crave watch"
    ),
}


def iterate_lock_states(names: list[str]) -> Iterator[bool]:
    """Yield for each step whether the lock is held behind it."""
    held = False
    for name in names:
        held = name.endswith("holds lock") or (held and not name.endswith("gave back lock"))
        yield held


def others_go_on(slot: Place, locked: bool) -> list[Got]:
    """Messages pass at once, in order, through all slots but those that the victim has; returns what was there."""
    if not locked:
        slot.look()  # nobody is dead, but a former one
    got = slot.drain()
    for start in range(OTHER, OTHER + 100 * LAPS, 100):
        sent = slot.fill(start)
        assert len(sent) >= slot.slots - 3, f"room for {len(sent)} only"
        assert slot.drain() == [Got(number, 1) for number in in_order(sent)]
        if not locked:
            slot.look()
    return got


def run(slot: Place, scene: ProcessGroup, at: int, locked: bool = False) -> list[str]:
    """Stop the victim at one point, let others go on, and then it. Returns the points that it names."""
    assert not slot.drain(), "both remember now that nothing is there"
    victim = slot.driver(scene.operations, "*", at, signal.SIGSTOP)
    victim.wait_until_ready()
    if scene.former:
        slot.killed(scene.former)
    before = [*range(10, 10 + scene.former.count("send")), *range(BEFORE, BEFORE + scene.before)]
    slot.send(*before[scene.former.count("send") :])
    victim.proceed()
    got: list[Got] = []
    if at and victim.wait_stopped_or_ended():
        got = others_go_on(slot, locked)
        victim.go_on()
    lines = victim.ended(0)
    slot.look()
    got += slot.drain()
    all_of_them = [number for number, _ in got] + read_driver_numbers(lines, "got")
    assert sorted(all_of_them) == [*before, *range(200, 200 + scene.own)]
    assert not read_driver_numbers(lines, "lost")
    for number, deliveries in got:
        assert deliveries <= 1 + ("take" in scene.operations + scene.former), f"{number} came {deliveries} times"
    life_goes_on(slot)
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", SCENES)
def test_queue_process_stopped_at_each_access_blocks_no_other_process(slot: Place, scene: str) -> None:
    """What: the victim stops at each access; others send and receive, and come and go; then it goes on.

    Why: the scheduler may take the CPU from anybody, anywhere, for as long as it likes.

    Failure would mean: somebody waits for one that does not run; or what it does with what it saw before, to a queue
    that has gone on, loses or repeats a message.
    """
    with slot.another(0) as trial:
        names = run(trial, SCENES[scene], 0)
    problems, seen = [], Counter[str]()
    for at, (name, locked) in enumerate(zip(names, iterate_lock_states(names), strict=True), 1):
        seen[name] += 1
        if seen[name] > OFTEN:
            continue
        with slot.another(at) as round_:
            try:
                run(round_, SCENES[scene], at, locked)
            except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
                problems.append(f"at step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


@pytest.mark.parametrize("former", ["join hold", "join send:0 take:1"], ids=["held", "taken"])
def test_recovery_stopped_during_row_reuse_keeps_slots_of_new_owner(slot: Place, former: str) -> None:
    """What: one who has just found the first slot of a dead one stops; somebody takes the dead one's row, and slots.

    Why: what is known of an owner is not known of the next one in its row.

    Failure would mean: a living one's slots are given to others while it writes to them.
    """
    slot.killed(former)
    victim = slot.driver("enter ready arm sweep", "mq_queue_*: exchanged &h->parts.slot_states*", 1, signal.SIGSTOP)
    victim.wait_until_ready()
    victim.proceed()
    victim.wait_stopped()
    slot.kill_free_rows()
    heir = slot.waiting("enter hold hold hold")
    words = slot.slot_states()
    victim.go_on()
    victim.ended(0)
    assert slot.slot_states() == words, "it lives"
    heir.process.kill()
    heir.process.wait()
    slot.look()
    assert [number for number, _ in slot.drain()] == [0] * ("send" in former)
    life_goes_on(slot)


def run_leased(slot: Place, at: int) -> list[str]:
    """Stop a victim that takes a message for 10 ms. Returns the points that it names."""
    slot.send(0)
    victim = slot.driver("join arm lease:1:1 disarm ready ack", "*", at, signal.SIGSTOP)
    got: list[Got] = []
    if at:
        victim.wait_stopped()
        if slot.lease(0):
            got = wait_until(slot.look_and_drain)
            assert got == [Got(0, 2)]
        else:
            slot.look()
            slot.look()
            got += slot.drain()
        others_go_on(slot, False)
        victim.go_on()
    victim.proceed()
    lines = victim.ended(0)
    got += slot.drain()
    assert [number for number, _ in got] + read_driver_numbers(lines, "got") == [0]
    assert len(read_driver_numbers(lines, "lost")) == (len(read_driver_numbers(lines, "took")) if got else 0), lines
    life_goes_on(slot)
    return read_driver_points(lines)


def test_lease_of_stopped_consumer_expires_and_message_is_redelivered(slot: Place) -> None:
    """What: a taker stops at each access before, in and after its lease; others get the message when that is over.

    Why: a lease is for takers that live and do not go on.

    Failure would mean: a message waits for a stopped process, or two have acknowledged it.
    """
    with slot.another(0) as trial:
        names = run_leased(trial, 0)
    assert "mq_queue_set_job_lease: stored &h->parts.slot_headers[delivery->slot].lease" in names
    for at in range(1, len(names) + 1):
        with slot.another(at) as round_:
            run_leased(round_, at)


@pytest.mark.ci
def test_queue_lock_of_stopped_process_makes_open_fail_after_5_seconds(slot: Place) -> None:
    """Nobody knows how long it will be stopped, so they are told. Those who are there send and receive."""
    victim = slot.driver("arm join", "mq_participant_write: stored &participant->uid", 2, signal.SIGSTOP)
    victim.wait_stopped()
    with pytest.raises(SegmentError, match="locked by another process"):
        slot.look()
    assert len(slot.fill(0)) == SLOTS
    assert len(slot.drain()) == SLOTS
    victim.go_on()
    victim.ended(0)
    slot.look()


def test_second_sender_wakes_other_sleeper_while_first_sender_is_stopped(slot: Place) -> None:
    """What: two sleep; a sender stops while it wakes one of them, and another sender comes.

    Why: the second one cannot know whether the first one stopped before its wake or behind it: it wakes that one, too.

    Failure would mean: of two messages that are sent at a time one waits for a second, beside a receiver that sleeps.
    """
    sleepers = [slot.driver("join ready wait:60000", "*never*") for _ in range(2)]
    for sleeper in sleepers:
        sleeper.wait_until_ready()
        sleeper.proceed()
        wait_asleep(sleeper.pid)
    victim = slot.driver("join arm send:0", "mq_eventcount_notify_mp: exchanged word", 1, signal.SIGSTOP)
    victim.wait_stopped()
    slot.send(1)
    got = [number for sleeper in sleepers for number in read_driver_numbers(sleeper.ended(0), "got")]
    assert sorted(got) == [0, 1]
    victim.go_on()
    victim.ended(0)
    life_goes_on(slot)

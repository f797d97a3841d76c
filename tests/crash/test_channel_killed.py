"""Publishers and subscribers of channels that are killed at each step; others must not notice more than needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from msgq.errors import IpcError
from tests.crash.channels import (
    FORMER,
    Place,
    all_slots_are_to_be_had,
    flood,
    life_goes_on,
    pins,
    place,
    program,
    wait_for_driver_kill,
)
from tests.crash.victims import message

__all__ = ["place", "program"]

#: What the victim does, after "arm" step by step; "announce" is a sleeper to wake. The numbers of its messages go up
#: from 0. How many are sent before "arm".
PUBLISHERS = {
    "join": ("arm join:10:64 send:16:0", 0),
    "join with sleeper": ("listen announce arm join:10:64", 0),
    "join after death of other process": ("join:10:64 send:16:0 close arm join:10:64 send:16:1", 1),
    "send": ("join:10:64 send:16:0 listen announce arm send:16:1 send:16:2", 1),
    "send as many messages as slots": ("join:2:64 send:16:0 send:16:1 arm send:16:2 send:16:3", 2),
    "grow": ("join:10:64 send:16:0 arm grow:10:128 send:120:1", 1),
    "grow with loan": ("join:10:64 send:16:0 loan:16:1 arm grow:10:128 settle:16 send:120:2", 1),
    "close": ("join:10:64 send:16:0 arm close", 1),
    "close without message": ("join:10:64 arm close", 0),
    "join after too many deaths": (
        " ".join(f"join:2:64 send:16:{number} close" for number in range(9))
        + " join:2:64 send:16:9 arm close join:10:64",
        10,
    ),
}

#: The steps that must be among the points, or this test has lost its subject.
NAMED = {
    "join": [
        "lock_channel: holds lock",
        "mq_channel_store_config: stored &header->config",
        "mq_channel_publisher_register: stored &row->pool_uid",
        "mq_channel_name_pool: named file",
        "unlock_channel: gave back lock",
    ],
    "join with sleeper": ["mq_eventcount_notify_mp: woke mq_futex_word(word)"],
    "send": [
        "write_message: half copied to payload",
        "mq_channel_enqueue_slot: stored &at->length",
        "mq_index_ring_publish_entry: exchanged at",
        "mq_index_ring_publish_entry: exchanged order->tail",
        "mq_channel_enqueue_slot: stored &p->row->sent",
        "mq_eventcount_notify_mp: exchanged word",
    ],
    "send as many messages as slots": [
        "mq_index_ring_retract_entry: exchanged mq_index_ring_entry_at(order, position)",
    ],
    "close without message": [
        "mq_channel_remove_pool_file: removed file",
        "mq_channel_release_row: stored &row->pool_uid",
    ],
    "join after too many deaths": [
        "mq_channel_retract_row_entries: exchanged &order->entries[i]",
        "mq_channel_remove_pool_file: removed file",
        "mq_channel_release_row: stored &row->pool_uid",
    ],
    "grow": ["grow: stored &former.row->superseded", "mq_participant_leave: exchanged &participant->uid"],
    "view": [
        "mq_pool_pin_set: set &slots->pool_header->pins[slot].holders",
        "mq_pool_pin_clear: cleared &slots->pool_header->pins[slot].holders",
    ],
    "row of dead viewer": ["mq_pool_pin_clear: cleared &slots->pool_header->pins[slot].holders"],
}


def at_each_step(place: Place, scene: str, kill: Callable[[Place, int], list[str]]) -> None:
    """Have the victim killed at each step, in a place of its own; report all that fail. At 0 it lives."""
    with place.another(0) as trial:
        names = kill(trial, 0)
    for name in NAMED.get(scene, []):
        assert name in names, f"no such step any more; the steps are {names}"
    problems = []
    for at, name in enumerate(names, 1):
        with place.another(at) as round_:
            try:
                kill(round_, at)
            except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
                problems.append(f"after step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


def a_former_publisher(place: Place) -> None:
    """Have one publisher come and go, whose message is still there."""
    with place.channel.publisher() as former:
        former.send(message(FORMER))


def kill_publisher(place: Place, at: int, operations: str, sent: int) -> list[str]:
    other = place.publisher(slots=4)
    readers = place.readers()
    a_former_publisher(place)
    assert [reader.drain() for reader in readers] == [[FORMER]] * 3
    names = wait_for_driver_kill(place.driver(operations, at=at), at)
    for reader in readers:
        own, lost = reader.drain(), reader.subscriber.lost  # retracted
        assert own == [*range(lost, lost + len(own))], f"{reader.kind}: {own}"
        assert len(own) + lost >= sent, f"{reader.kind} has not all that were sent: {own}"
    assert len({tuple(reader.numbers) for reader in readers}) == 1, [reader.numbers for reader in readers]
    life_goes_on(place, readers, other)
    return names


@pytest.mark.parametrize("scene", PUBLISHERS)
def test_channel_publisher_killed_at_each_step_leaves_usable_channel(place: Place, scene: str) -> None:
    """What: the victim dies at each of its points in turn. Subscribers that were in place drain the channel, others
    publish, and then lap them; one more joins.

    Why: a publisher may die anywhere, and nobody has a say in when.

    Failure would mean: a message was lost, torn or repeated because a publisher died; a count went wrong; a file stays
    in /dev/shm; or somebody's slots are lost.
    """
    operations, sent = PUBLISHERS[scene]
    at_each_step(place, scene, lambda where, at: kill_publisher(where, at, operations, sent))


#: After "arm" step by step; three messages come before that, while it says "ready".
SUBSCRIBERS = {
    "listener": "ready arm listen leave",
    "copy": "listen ready arm receive:3 leave",
    "viewer": "listen ready arm view hold:3 release leave",
    "view": "listen view ready arm hold:3 release leave",
}


def kill_subscriber(place: Place, at: int, operations: str) -> list[str]:
    other = place.publisher()
    readers = place.readers()
    a_former_publisher(place)
    victim = place.driver(operations, at=at)
    victim.wait_until_ready()
    flood(other, range(1, 4))
    victim.proceed()
    names = wait_for_driver_kill(victim, at)
    for reader in readers:
        assert reader.drain() == [FORMER, 1, 2, 3], reader.kind
    life_goes_on(place, readers, other)
    assert not any(pins(place)), "a bit of the dead"
    return names


@pytest.mark.parametrize("scene", SUBSCRIBERS)
def test_channel_subscriber_killed_at_each_step_leaves_usable_channel(place: Place, scene: str) -> None:
    """What: the victim dies while it joins, receives, holds, lets go and leaves.

    Why: what it holds is in the publisher's way.

    Failure would mean: slots are lost for ever, or somebody who reads or writes is kept waiting.
    """
    operations = SUBSCRIBERS[scene]
    at_each_step(place, scene, lambda where, at: kill_subscriber(where, at, operations))


def test_reused_viewer_bit_of_killed_subscriber_releases_slots(place: Place) -> None:
    """What: a viewer dies with all slots in its hands. Its successor dies at each step of
    taking it; then comes another one.

    Why: a bit that is handed on with slots that nobody holds keeps them from the publisher for ever.

    Failure would mean: the publisher lacks slots although everybody who held them is dead or has let go.
    """

    def kill(where: Place, at: int) -> list[str]:
        other = where.publisher(slots=4)
        holder = where.driver("listen view ready hold:4 arm ready", "*never*")
        holder.wait_until_ready()
        flood(other, range(4))
        holder.proceed()
        holder.wait_until_ready()
        holder.process.kill()
        holder.process.wait()
        assert [*pins(where)] == [1] * 4
        names = wait_for_driver_kill(where.driver("listen arm view", at=at), at)
        with where.channel.subscriber() as viewer:
            assert viewer.receive_view(0) is None
            assert not any(pins(where)), "a bit that nobody has"
            flood(other, range(4, 8))
            held = [viewer.receive_view(0) for _ in range(4)]
            with contextlib.ExitStack() as stack:
                for view in held:
                    assert view is not None
                    stack.callback(view.release)
                assert [*pins(where)] == [1] * 4
        all_slots_are_to_be_had(other)
        return names

    at_each_step(place, "row of dead viewer", kill)

"""Publishers and subscribers of channels that are stopped (SIGSTOP) at each access to shared memory."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from msgq.errors import IpcError, SegmentError
from tests.crash.channels import (
    BURST,
    CAPACITY,
    LAPS,
    OTHER,
    Place,
    Reader,
    all_slots_are_to_be_had,
    flood,
    pins,
    place,
    program,
)

__all__ = ["place", "program"]

OFTEN = 4  # times that the victim stops at points of the same name: it looks at hundreds of rows, for example

#: What the victim does, after "arm" step by step, and what its messages are then. Two messages of another one come
#: while it says "ready".
SCENES: dict[str, tuple[str, list[int]]] = {
    "join": ("ready arm join:10:64 send:16:0", [0]),
    "send": ("join:10:64 send:16:0 listen announce ready arm send:16:1 send:16:2", [0, 1, 2]),
    "send as many messages as slots": ("join:2:64 send:16:0 send:16:1 ready arm send:16:2 send:16:3", [0, 1, 2, 3]),
    "grow with loan": ("join:10:64 loan:16:0 ready arm grow:10:128 settle:16 send:120:1", [0, 1]),
    "close": ("join:10:64 send:16:0 ready arm close", [0]),
    "copy": ("listen ready arm receive:2 tell leave", []),
    "view": ("listen view ready arm hold:2 release tell leave", []),
    "viewer": ("listen ready arm view leave", []),
}


def iterate_lock_states(names: list[str]) -> Iterator[bool]:
    """Yield for each step whether the lock is held behind it."""
    held = False
    for name in names:
        held = name.endswith("holds lock") or (held and not name.endswith("gave back lock"))
        yield held


def run(place: Place, scene: str, at: int, locked: bool = False) -> list[str]:
    """Stop the victim at one point, let others pass ten capacities, and let it go on. Returns the points it names."""
    operations, own = SCENES[scene]
    other, readers = place.publisher(), place.readers()
    victim = place.driver(operations, "*", at, signal.SIGSTOP)
    victim.wait_until_ready()
    flood(other, range(OTHER, OTHER + 2))
    victim.proceed()
    if at and victim.wait_stopped_or_ended():
        got = others_go_on(place, readers, other, locked)
        victim.go_on()
    else:
        got = [[*range(OTHER, OTHER + 2)]] * len(readers)
    said = victim.ended(0)
    for reader, numbers in zip(readers, got, strict=True):
        reader.drain()
        assert [number for number in reader.numbers if number >= OTHER] == numbers, reader.kind
        mine = [number for number in reader.numbers if number < OTHER]
        assert len(mine) + reader.subscriber.lost == len(own), f"{reader.kind} got {mine}"
        assert mine == own[len(own) - len(mine) :] or "slots" in scene, f"{reader.kind} got {mine}"
        reader.check(place.channel.messages)
    for told in (re.findall(r"\d+", line) for line in said if line.endswith("passed")):
        assert int(told[0]) + int(told[1]) == int(told[2]), told
    all_slots_are_to_be_had(other)
    assert not any(pins(place))
    return [line for line in said if ": " in line]


def others_go_on(place: Place, readers: list[Reader], other: object, locked: bool) -> list[list[int]]:
    """Return the numbers of all messages of the other publisher, which each reader gets as they come."""
    end = OTHER + 2 + LAPS * CAPACITY
    for start in range(OTHER + 2, end, BURST):
        flood(other, range(start, start + BURST))
        for reader in readers:
            assert reader.drain()[-BURST:] == [*range(start, start + BURST)], reader.kind
    if not locked:
        with place.channel.publisher() as newcomer, place.channel.subscriber() as late:
            newcomer.send(b"")
            view, last = late.receive_view(0), late.last
            assert view is not None
            assert last
            assert view.position == last.position
            view.release()
            for reader in readers:
                assert reader.subscriber.receive(0) == b""
                reader.numbers.append(end)
        end += 1
    return [[*range(OTHER, end)]] * len(readers)


@pytest.mark.parametrize("scene", SCENES)
def test_channel_process_stopped_at_each_access_blocks_no_other_process(place: Place, scene: str) -> None:
    """What: the victim stops at each access; others publish, receive, join and leave; then it goes on.

    Why: the scheduler may take the CPU from anybody, anywhere, for as long as it likes.

    Failure would mean: somebody waits for one that does not run; or what it does with what it saw before, to a channel
    that has gone on, breaks a message or a count.
    """
    with place.another(0) as trial:
        names = run(trial, scene, 0)
    problems, seen = [], Counter[str]()
    for at, (name, locked) in enumerate(zip(names, iterate_lock_states(names), strict=True), 1):
        seen[name] += 1
        if seen[name] > OFTEN:
            continue
        with place.another(at) as round_:
            try:
                run(round_, scene, at, locked)
            except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
                problems.append(f"at step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


@pytest.mark.ci
def test_channel_lock_of_stopped_process_makes_open_fail_after_5_seconds(place: Place) -> None:
    """Nobody knows how long it will be stopped, so they are told."""
    victim = place.driver("arm join:10:64", "mq_channel_publisher_register: stored &row->pool_uid", 1, signal.SIGSTOP)
    victim.wait_stopped()
    with pytest.raises(SegmentError, match="locked by another process"):
        place.publisher()
    victim.go_on()
    victim.ended(0)
    place.publisher().send(b"")

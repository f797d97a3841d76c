"""Publishers and subscribers of a channel that are killed at random moments, by the hundred."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest

from msgq.channel import Channel
from tests.crash.channels import all_slots_are_to_be_had, flood
from tests.crash.harness import message, number_of
from tests.crash.killing import kill_at_random, run_in_killed_child
from tests.stress.roles import has_input
from tests.support import LONGER, SHM, Child, run_child, say, wait_until

CAPACITY = 32
PUBLISHERS = 3
AWAITED = 8  # kills, of which one is of a publisher from which both watchers have received
POOLS_MAX = 8 + PUBLISHERS + 20  # the dead that stay, the living, and those who died while they joined


def publish_for_ever(endpoint: str, victim: int) -> None:
    """Send messages of all sizes; each number has the victim's above its own."""
    rng = random.Random(victim)
    with Channel(endpoint, create=False) as channel, channel.publisher(slot_bytes=64, max_bytes=1 << 20) as publisher:
        for number in itertools.count():
            publisher.send(message(victim << 32 | number, rng.choice((16, 60, 64, 64, 64, 3000))))


def receive_for_ever(endpoint: str, views: bool) -> None:
    """Take messages, and keep a few."""
    kept: list[Any] = []
    with Channel(endpoint, create=False) as channel, channel.subscriber() as subscriber:
        while True:
            if not views:
                number_of(subscriber.receive() or b"")
                continue
            view = subscriber.receive_view(1)
            if view is not None:
                number_of(bytes(view))
                kept.append(view)
            while len(kept) > 5:
                kept.pop(0).release()


def pools(endpoint: str) -> int:
    return sum(1 for path in os.listdir(SHM) if path.startswith(f"msgqpool_{endpoint}:"))


def run_random_kills(endpoint: str, seed: int, kills: int, received: str) -> dict[str, Any]:
    """Child: kill publishers and two subscribers. Returns the most pools at a time, too."""
    rng, victims, numbers, most = random.Random(seed), itertools.count(), [0] * PUBLISHERS, 0

    def start(role: int) -> int:
        if role < PUBLISHERS:
            numbers[role] = next(victims)
            return run_in_killed_child(publish_for_ever, endpoint, numbers[role])
        return run_in_killed_child(receive_for_ever, endpoint, role == PUBLISHERS)

    def is_received(role: int) -> bool:
        return all(Path(received, f"{numbers[role]}-{views}").exists() for views in (False, True))

    def choose(kill: int) -> int:
        nonlocal most
        most = max(most, pools(endpoint))
        role: int = rng.choice([*range(PUBLISHERS)] * 3 + [PUBLISHERS, PUBLISHERS + 1])
        if kill % AWAITED == 0:
            role = rng.randrange(PUBLISHERS)
            wait_until(lambda: is_received(role))
        return role

    return kill_at_random(start, PUBLISHERS + 2, rng, kills, choose) | {"pools": most}


def receive_and_check(endpoint: str, views: bool, received: str) -> dict[str, int]:
    """Child: receive until the parent writes a line; check each message and the counts.

    The first message of each publisher creates a file in the folder `received`.
    """
    last: dict[int, int] = {}
    with Channel(endpoint, create=False) as channel, channel.subscriber() as subscriber:
        begun = subscriber.position or CAPACITY
        say("ready")
        while True:
            if views:
                view = subscriber.receive_view(0.02)
                data = None if view is None else bytes(view)
                if view is not None:
                    view.release()
            else:
                data = subscriber.receive(0.02)
            assert subscriber.received + subscriber.lost == subscriber.position - begun
            if data is None:
                if has_input():
                    break
                continue
            victim, number = divmod(number_of(data), 1 << 32)
            assert number > last.get(victim, -1), f"{number} of {victim} after {last[victim]}"
            if victim not in last:
                Path(received, f"{victim}-{views}").touch()
            last[victim] = number
        return {"received": subscriber.received, "lost": subscriber.lost, "victims": len(last)}


@pytest.mark.watchdog(120.0 * max(LONGER, 1))
@pytest.mark.parametrize("kills", [40, pytest.param(int(1000 * LONGER), marks=pytest.mark.nightly)])
def test_channel_with_random_kills_delivers_correct_messages(
    endpoint: str, seed: int, tmp_path: Path, kills: int
) -> None:
    """What: publishers and subscribers are killed at random moments; two subscribers watch from the start.

    Why: the named steps are those that we thought of.

    Failure would mean: a crash somewhere tears or repeats messages, breaks a count, takes slots, or leaves files.
    """
    received = str(tmp_path)
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        try:
            with (
                Child(receive_and_check, endpoint, False, received) as copying,
                Child(receive_and_check, endpoint, True, received) as viewing,
            ):
                assert (copying.hear(), viewing.hear()) == ("ready", "ready")
                result = run_child(run_random_kills, endpoint, seed, kills, received)
                assert result["failed"] == 0, result
                assert result["pools"] <= POOLS_MAX, result
                with channel.publisher(slots=CAPACITY) as last:
                    flood(last, ((1 << 62) + number for number in range(10 * CAPACITY)))
                    all_slots_are_to_be_had(last)
                    channel.publisher().close()  # one join
                    assert pools(endpoint) <= 2, "files of the dead"
                    for child in (copying, viewing):
                        child.say("stop")
                        report = child.result()
                        assert report["received"] + report["lost"] == channel.messages, report
                        assert report["victims"] >= result["killed"] // AWAITED, report
        finally:
            channel.unlink()
    assert [name for name in os.listdir(SHM) if endpoint in name] == []

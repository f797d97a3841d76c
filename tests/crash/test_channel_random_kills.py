"""Publishers and subscribers of a channel that are killed at random moments, by the hundred."""

from __future__ import annotations

import itertools
import os
import random
import time
from typing import Any

import pytest

from msgq.channel import Channel
from tests.crash.channels import all_slots_are_to_be_had, flood
from tests.crash.test_random_kills import end, forked
from tests.crash.victims import message, number_of
from tests.stress.roles import told
from tests.support import LONGER, SHM, Child, say

CAPACITY = 32
PUBLISHERS, KILLS = 3, 1000
POOLS_MAX = 8 + PUBLISHERS + 20  # the dead that stay, the living, and those who died while they joined
PATIENCE = 30.0  # seconds of killing


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


def massacre(endpoint: str, seed: int) -> dict[str, int]:
    """Child: keep publishers and two subscribers running, and kill one of them at a random moment, again and again.

    Returns how many failed in another way than by being killed, how many were killed, and the most pools at a time.
    """
    rng, victims = random.Random(seed), itertools.count()

    def start(role: int) -> int:
        if role < PUBLISHERS:
            return forked(publish_for_ever, endpoint, next(victims))
        return forked(receive_for_ever, endpoint, role == PUBLISHERS)

    pids = {role: start(role) for role in range(PUBLISHERS + 2)}
    failed = killed = most = 0
    until = time.monotonic() + PATIENCE * max(LONGER, 1)
    while killed < KILLS * LONGER and time.monotonic() < until:
        killed += 1
        time.sleep(rng.expovariate(200))  # the moment of the crime; nothing waits for it
        role = rng.choice([*range(PUBLISHERS)] * 3 + [PUBLISHERS, PUBLISHERS + 1])
        failed += end(pids[role])
        pids[role] = start(role)
        most = max(most, pools(endpoint))
    failed += sum(end(pid) for pid in pids.values())
    return {"failed": failed, "killed": killed, "pools": most}


def watch(endpoint: str, views: bool) -> dict[str, int]:
    """Child: receive all the while, check each message and the account, until told to stop."""
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
                if told():
                    break
                continue
            victim, number = divmod(number_of(data), 1 << 32)
            assert number > last.get(victim, -1), f"{number} of {victim} after {last[victim]}"
            last[victim] = number
        return {"received": subscriber.received, "lost": subscriber.lost, "victims": len(last)}


@pytest.mark.watchdog(120.0 * max(LONGER, 1))
@pytest.mark.nightly
def test_anybody_killed_at_any_moment(endpoint: str, seed: int) -> None:
    """What: a thousand publishers and subscribers are killed at random moments; two subscribers watch from the start.

    Why: the named steps are those that we thought of.

    Failure would mean: a crash somewhere tears or repeats messages, breaks a count, takes slots, or leaves files.
    """
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        try:
            with Child(watch, endpoint, False) as copying, Child(watch, endpoint, True) as viewing:
                assert (copying.hear(), viewing.hear()) == ("ready", "ready")
                with Child(massacre, endpoint, seed) as murderer:
                    result = murderer.result()
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
                        assert report["victims"], "messages of killed publishers"
        finally:
            channel.unlink()
    assert [name for name in os.listdir(SHM) if endpoint in name] == []

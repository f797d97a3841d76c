"""Publishers and subscribers that are killed at random moments, by the hundred."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import msgq
from tests.stress.process_group import ProcessGroup, assert_complete, finish, ring
from tests.stress.roles import fork, has_input, publisher, subscriber
from tests.stress.traffic import Ledger, Stream, largest_message_size
from tests.support import LONGER, SHM, say

RING = 4096
PATIENCE = 20.0  # seconds of killing


def publish_for_ever(endpoint: str, stream: Stream) -> None:
    """Go on with the messages where the last publisher stopped: their number is the count of messages."""
    with publisher(endpoint) as socket:
        while True:
            socket.send(stream.message(socket.stats().messages))


def join_for_ever(endpoint: str, stream: Stream, rng: random.Random) -> None:
    """Join, receive a little, leave."""
    while True:
        with subscriber(endpoint, conflate=rng.random() < 0.5) as socket:
            ledger = Ledger(stream, None)
            for _ in range(rng.randrange(200)):
                message = socket.receive()
                ledger.take([] if message is None else [message], socket.lost)


def run_in_killed_child(function: Callable[..., None], *args: Any) -> int:
    """Run a function in a forked process until it is killed; it ends in another way only by a mistake."""
    if pid := fork():
        return pid
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def end(pid: int) -> bool:
    """Kill a child; true if it had ended by itself."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -signal.SIGKILL


def kill_at_random(
    start: Callable[[int], int],
    roles: int,
    rng: random.Random,
    kills: int,
    choose: Callable[[int], int],
    enough: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Keep a process of each role running, and kill one of them at a random moment, again and again.

    As often as wanted, and until `enough` was done, or for as long as a machine that is busy is given. `choose` returns
    the role for the n-th kill. Returns how many failed in another way than by being killed, and how many were killed.
    """
    pids = [start(role) for role in range(roles)]
    failed = killed = 0
    until = time.monotonic() + PATIENCE * max(LONGER, 1)
    while killed < kills and time.monotonic() < until:
        killed += 1
        role = choose(killed)
        time.sleep(rng.expovariate(200))  # the moment of the crime; nothing waits for it
        failed += end(pids[role])
        pids[role] = start(role)
    while not enough() and time.monotonic() < until:
        time.sleep(0.01)
    failed += sum(end(pid) for pid in pids)
    return {"failed": failed, "killed": killed + roles}


def run_random_kills(endpoint: str, seed: int, kills: int) -> dict[str, Any]:
    """Child: kill a publisher and three subscribers."""
    rng, stream = random.Random(seed), Stream(seed, largest_message_size(RING), 16)

    def start(role: int) -> int:
        if role == 0:
            return run_in_killed_child(publish_for_ever, endpoint, stream)
        return run_in_killed_child(join_for_ever, endpoint, stream, random.Random(rng.random()))

    say("ready")
    return kill_at_random(start, 4, rng, kills, lambda _: rng.choice((0, 0, 1, 2, 3)))


def receive_and_check(endpoint: str, seed: int, kind: str) -> dict[str, Any]:
    """Child: subscribe before all others, check everything, until told to stop."""
    ledger = Ledger(Stream(seed, largest_message_size(RING), 16), kind=kind)
    with subscriber(endpoint, passive=kind == "passive", conflate=kind == "conflate") as socket:
        say("ready")
        while True:
            message = socket.receive()
            ledger.take([] if message is None else [message], socket.lost)
            if message is None and has_input():
                return ledger.report()


@pytest.mark.watchdog(180.0 * max(LONGER, 1))
@pytest.mark.parametrize("kills", [40, pytest.param(int(500 * LONGER), marks=pytest.mark.nightly)])
def test_topic_with_random_kills_delivers_correct_messages(
    scene: ProcessGroup, endpoint: str, seed: int, kills: int
) -> None:
    """What: processes that publish, or join and leave, are killed at random moments; three subscribers watch from
    the start.

    Why: the named steps are those that we thought of.

    Failure would mean: a crash somewhere costs or repeats messages, breaks the count, keeps others out, or leaves a
    file behind.
    """
    with ring(endpoint, RING):
        watchers = scene.start_all(
            [(receive_and_check, endpoint, seed, kind) for kind in ("plain", "passive", "conflate")]
        )
        result = scene.start(run_random_kills, endpoint, seed, kills).result()
        assert result["failed"] == 0, result
        with publisher(endpoint) as pub:
            published, snapshot = pub.stats().messages, msgq.stats.topic(endpoint)
        assert snapshot.publisher is not None
        assert snapshot.publisher.pid == os.getpid()
        living = {info.participant.pid for info in snapshot.subscribers if info.participant.alive}
        assert living == {watchers[0].pid, watchers[2].pid}, "passive ones are not seen"
        assert snapshot.messages == published
        assert_complete(finish(watchers), published)
    left = sorted(path.name for path in SHM.iterdir() if endpoint in path.name)
    assert left == [f"msgq_{endpoint}", f"msgqside_{endpoint}"]

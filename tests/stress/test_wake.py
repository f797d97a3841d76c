"""Sleeping and waking: every wait here has a long time-out, and none may reach it."""

from __future__ import annotations

import random

import pytest

import msgq
from tests.stress import roles
from tests.stress.process_group import ProcessGroup, ring
from tests.support import LONGER


@pytest.mark.nightly
def test_ping_pong_processes_miss_no_wakeup(scene: ProcessGroup, endpoint: str, seed: int, prefix: str) -> None:
    """What: two processes answer each other 100,000 times, after random pauses of the length that going to sleep takes.

    Why: the publisher stores write_pointer and loads eventcount, the sleeper does it the other way round.

    Failure would mean: a message came between a subscriber's last look and its sleep, and nobody woke it.
    """
    rounds, rng, back = int(100_000 * LONGER), random.Random(seed), f"{endpoint}-back"
    with ring(endpoint, 1024), ring(back, 1024), roles.publisher(endpoint) as ping:
        child = scene.start(roles.echo, endpoint, back, seed + 1, rounds)
        with roles.sleeper(back) as pong:
            assert child.hear() == "ready"
            for i in range(rounds):
                message = i.to_bytes(8, "little")
                roles.pause_randomly(rng)
                ping.send(message)
                assert pong.receive() == message, f"round {i}"
        child.result()


@pytest.mark.parametrize("readers", [1, pytest.param(6, marks=pytest.mark.nightly)])
def test_bursts_of_exactly_one_ring_lap_miss_no_wakeup(
    scene: ProcessGroup, endpoint: str, seed: int, readers: int
) -> None:
    """What: bursts of exactly one or two laps of a tiny ring, each awaited by blocking receives.

    Why: the offset of write_pointer is the same again after a lap.

    Failure would mean: one that was delayed between its last look and its sleep took a full ring for an empty one, and
    sleeps on although messages are there.
    """
    with ring(endpoint, 128):  # seven messages of 8 bytes to a lap
        source = scene.start(roles.bursts, endpoint, seed, int(10_000 * LONGER), [1, 7, 7, 14])
        sleepers = scene.start_all([(roles.drowsy, endpoint)] * readers)
        source.say("go")
        source.result()
        for sleeper in sleepers:
            assert sleeper.result() > 0


def test_poller_with_12_topics_wakes_for_each_message(
    scene: ProcessGroup, endpoint: str, seed: int, prefix: str
) -> None:
    """What: three processes publish on twelve topics in random order; two pollers wait for all of them.

    Why: one sleep covers many words, and a message may come on one topic while another is looked at.

    Failure would mean: `poll` sleeps although a registered subscriber is ready, or misses a message.
    """
    topics = [f"{endpoint}-{i}" for i in range(12)]
    for topic in topics:
        with ring(topic, 1024):
            pass
    count = int(1500 * LONGER)
    sources = scene.start_all([(roles.scatter, topics[i::3], seed + i, count) for i in range(3)])
    pollers = scene.start_all([(roles.poll_many, topics, 3 * count)] * 2)
    for source in sources:
        source.say("go")
    sent = {name: number for source in sources for name, number in source.result().items()}
    assert sum(sent.values()) == 3 * count
    for child in pollers:
        assert child.result() == sent
    assert {topic.endpoint for topic in msgq.stats.topics(prefix)} == set(topics)

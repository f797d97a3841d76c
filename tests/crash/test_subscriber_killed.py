"""A subscriber that is killed at each step; and many of them, so that nothing may leak."""

from __future__ import annotations

import signal
import struct

import pytest

import msgq
from tests.crash.victims import WRITES, Topic, drain, flood, state
from tests.support import DEADLINE, wait_until

#: What the victim does; after "arm" step by step.
SCENES = {
    "join": "arm join",
    "join again": "join leave arm join",
    "receive": "join ready arm receive:0:3",
    "conflate": "join ready arm receive:1:3",
    "go to sleep": "join arm announce",
    "leave": "join arm leave",
}

#: The steps of docs/internals/topic-protocol.md that must be among the points, or this test has lost its subject.
NAMED = {
    "join": [
        "join: holds lock",
        "mq_participant_write: stored &participant->uid",
        "mq_reader_slot_claim: exchanged &ring->num_readers",
        "mq_reader_slot_try_claim: exchanged &ring->read_uids[slot]",
        "mq_reader_slots_announce_change: set &side->eventcount",
        "join: gave back lock",
    ],
    "receive": [
        "receive: half copied from message.payload",
        "mq_ring_subscriber_store_stats: stored &s->row->received",
    ],
    "go to sleep": ["mq_eventcount_prepare_wait: set word"],
    "leave": ["mq_reader_slot_release: exchanged &ring->read_uids[slot]"],
}


def slots(topic: Topic) -> list[int]:
    """Return the uids in the ring's 15 slots."""
    with open(topic.files[0], "rb") as file:
        return [*struct.unpack_from("<15Q", file.read(384), 264)]


def run_victim(topic: Topic, pub: msgq.PubSocket, operations: str, at: int) -> list[str]:
    """Run the victim up to its `at`-th point (0: to its end, for the names), with messages if it wants to receive."""
    victim = topic.driver(operations, WRITES, at)
    if "ready" in operations:
        victim.wait_until_ready()
        flood(pub, range(3))
        victim.proceed()
    return victim.ended(-signal.SIGKILL if at else 0)


@pytest.mark.parametrize("scene", SCENES)
def test_subscriber_killed_at_each_step_leaves_usable_topic(topic: Topic, scene: str) -> None:
    """What: the victim dies at each of its points in turn, all on one topic; the publisher and two subscribers go on.

    Why: a dead subscriber cannot leave; what it left must not count, and not be in the way.

    Failure would mean: back-pressure waits for a dead one, a living one is disturbed, or a place is lost for ever.
    """
    with topic.another("trace") as trial, trial.pub() as pub:
        names = run_victim(trial, pub, SCENES[scene], 0)
    for name in NAMED.get(scene, []):
        assert name in names, f"no such step any more; the steps are {names}"
    pub, sub, passive = topic.pub(), topic.sub(), topic.sub(passive=True)
    for at, name in enumerate(names, 1):
        run_victim(topic, pub, SCENES[scene], at)
        pub.send(b"")
        got = drain(sub)
        assert got == drain(passive) == ([0, 1, 2, 0] if "ready" in SCENES[scene] else [0]), name
        assert pub.all_readers_updated(), name
        with topic.sub() as late:
            pub.send(b"")
            assert (drain(late), drain(sub), drain(passive)) == ([0], [0], [0]), name
    assert (sub.lost, passive.lost) == (0, 0)


def test_new_subscribers_reuse_slots_of_300_killed_subscribers(topic: Topic) -> None:
    """What: 300 subscribers are killed, each at the next step of joining or leaving; then 20 living ones join.

    Why: there are 128 entries and 15 slots.

    Failure would mean: after some crashes nobody is seen or signalled any more.
    """
    pub = topic.pub()
    names = topic.points("arm join announce leave")
    for i in range(300):  # how many steps there are depends on what the others left
        with topic.driver("arm join announce leave", at=1 + i % len(names)) as victim:
            assert victim.process.wait(DEADLINE) in (0, -signal.SIGKILL)
    subs = [topic.sub() for _ in range(20)]
    flood(pub, range(3))
    assert all(drain(sub) == [0, 1, 2] for sub in subs)
    pub.wait_for_readers(0, n=20)
    snapshot = msgq.stats.topic(topic.endpoint)
    assert sum(info.participant.alive or False for info in snapshot.subscribers) == 20
    assert snapshot.stock_subscribers == 0
    assert len(set(slots(topic)) - {0}) == 15
    for sub in subs:
        sub.close()
    assert slots(topic) == [0] * 15
    with pytest.raises(msgq.errors.WaitTimeoutError):
        pub.wait_for_readers(0, n=1)


def test_new_publishers_reuse_rows_of_100_killed_publishers(topic: Topic) -> None:
    """What: 100 publishers are killed at each step of starting, sending and closing in turn.

    Why: there are 16 publisher entries.

    Failure would mean: after some crashes nobody can publish any more.
    """
    operations = "arm claim send:16:0 send:16:1 close"
    names, sub = topic.points(operations), topic.sub()
    total = 0
    for i in range(100):
        topic.kill(operations, at=1 + i % len(names))
        total += len(drain(sub))
    pub = topic.pub()
    assert pub.stats().messages == 2 + total
    pub.send(b"")
    assert drain(sub) == [0]
    assert sub.lost == 0
    publisher = msgq.stats.topic(topic.endpoint).publisher
    assert publisher is not None
    assert publisher.alive


def test_new_publisher_wakes_sleepers_of_publisher_killed_before_wake(topic: Topic) -> None:
    """What: a publisher has cleared the sleepers' bit and dies before it wakes them; a new publisher starts.

    Why: nothing in shared memory says any more that somebody sleeps.

    Failure would mean: sleepers sleep on, with a message there, until by luck somebody else's sleep wakes them: a
    starting publisher must wake everybody, whatever the bits say.
    """
    sleeper = topic.driver("join doze", at=1 << 30)
    wait_until(lambda: state(sleeper.pid) == "S" and eventcount(topic) & 1, "the subscriber sleeps")
    topic.kill("arm claim", "mq_eventcount_notify: exchanged*")
    topic.pub()
    sleeper.ended(0)


def eventcount(topic: Topic) -> int:
    with open(topic.files[1], "rb") as file:
        return int.from_bytes(file.read(68)[64:], "little")

"""A subscriber that is stopped at each step, its reads included, while the publisher goes on, laps it, or leaves."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

import msgq
from tests.crash.victims import RING, Topic, flood, message, state
from tests.stress.roles import subscriber
from tests.support import DEADLINE_MS, Child, say, wait_asleep, wait_until

ONES = 2**64 - 1  # each word of such a message looks like a wrap mark


def stay(topic: Topic, pub: msgq.PubSocket) -> int:
    return 0


def lap(topic: Topic, pub: msgq.PubSocket) -> int:
    flood(pub, [ONES] * 60)
    return 60


def be_writing(topic: Topic, pub: msgq.PubSocket) -> int:
    """Leave a large message at the start of the next lap half done: the wrap is published, the message is not."""
    sent = 0
    while msgq.stats.topic(topic.endpoint).write_position[1] < RING - 200:
        pub.send(message(ONES, 16))
        sent += 1
    topic.enter(pub.reserve(320))[:] = b"\xff" * 320
    return sent


def lap_and_be_writing(topic: Topic, pub: msgq.PubSocket) -> int:
    return lap(topic, pub) + be_writing(topic, pub)


def close(topic: Topic, pub: msgq.PubSocket) -> int:
    pub.close()
    return 0


def lap_and_close(topic: Topic, pub: msgq.PubSocket) -> int:
    sent = lap(topic, pub)
    pub.close()
    return sent


def lap_and_restart(topic: Topic, pub: msgq.PubSocket) -> int:
    sent = lap_and_close(topic, pub)
    return sent + lap(topic, topic.pub())


@pytest.mark.parametrize("conflate", [0, 1], ids=["plain", "conflate"])
@pytest.mark.parametrize(
    "meanwhile", [stay, lap, be_writing, lap_and_be_writing, close, lap_and_close, lap_and_restart]
)
def test_subscriber_stopped_at_each_step_of_receive_returns_no_overwritten_message(
    topic: Topic, meanwhile: Callable[[Topic, msgq.PubSocket], int], conflate: int
) -> None:
    """What: a subscriber that is a few messages behind (or was lapped already) stops at each access to shared memory
    in turn; meanwhile the publisher does the worst; then the subscriber reads all there is.

    Why: between any two of its reads, everything may change.

    Failure would mean: it took a torn message for a good one, or its count went wrong.
    """
    problems = []
    for behind in (5, 70):
        at, going = 0, True
        while going:
            at += 1
            with topic.another(f"{behind}-{at}") as place:
                pub = place.pub()
                flood(pub, range(3))
                receive = f"receive:{conflate}:200"
                operations = f"join ready arm {receive} disarm {receive} tell"
                victim = place.driver(operations, "*", at, signal.SIGSTOP)
                victim.wait_until_ready()
                flood(pub, range(behind))
                victim.proceed()
                going = victim.wait_stopped_or_ended()
                sent = behind + (meanwhile(place, pub) if going else 0)
                victim.go_on()
                words = " ".join(victim.ended(0)).split()
                received, lost, unknown = int(words[0]), int(words[2]), int(words[4])
                if unknown or received + lost != sent:
                    problems.append(f"behind {behind}, step {at}: {words} of {sent}")
    assert not problems, "\n".join(problems)
    assert at > 10


def sleep_once(endpoint: str) -> int:
    """Child: sleep until a message comes."""
    with subscriber(endpoint) as socket:
        socket.setTimeout(DEADLINE_MS)
        say("ready")
        return len(socket.receive() or b"")


@pytest.mark.parametrize("laps", [0, 1, 3])
def test_subscriber_stopped_before_sleep_receives_message_sent_during_stop(topic: Topic, laps: int) -> None:
    """What: a subscriber stops just before the system call that puts it to sleep; meanwhile the publisher sends one
    message, or exactly a lap, so that the low half of write_pointer is the same again.

    Why: the kernel compares only 32 bits before it lets it sleep.

    Failure would mean: it sleeps although messages are there, and as it is no longer on record as sleeping, further
    messages do not wake it either.
    """

    def offset() -> int:
        return msgq.stats.topic(topic.endpoint).write_position[1]

    plan = {"LD_PRELOAD": str(topic.tools / "interpose.so"), "MSGQ_TEST_CALLS": f"{int(signal.SIGSTOP)} before sleep 1"}
    pub = topic.pub()
    flood(pub, range(5))
    with Child(sleep_once, topic.endpoint, env=plan) as sleeper:
        assert sleeper.hear() == "ready"
        wait_until(lambda: state(sleeper.pid) == "T", "the subscriber stopped")
        start = offset()
        for _ in range(laps):
            pub.send(message(1))
            while offset() != start:
                pub.send(message(1))
        if not laps:
            pub.send(message(1))
        sleeper.kill(signal.SIGCONT)
        if laps:  # it has lost all; what comes next must wake it
            wait_asleep(sleeper.pid)
            pub.send(message(1))
        assert sleeper.result() == 16


def test_subscriber_killed_before_sleep_leaves_publisher_usable(topic: Topic) -> None:
    """What: a subscriber stops when it has said that it will sleep, and is killed.

    Why: it leaves its bit in `eventcount`, and nobody to wake.

    Failure would mean: the publisher wakes nobody for ever, or somebody who sleeps as well is forgotten.
    """
    plan = {"LD_PRELOAD": str(topic.tools / "interpose.so"), "MSGQ_TEST_CALLS": f"{int(signal.SIGSTOP)} before sleep 1"}
    pub = topic.pub()
    with Child(sleep_once, topic.endpoint, env=plan) as victim, Child(sleep_once, topic.endpoint) as other:
        assert (victim.hear(), other.hear()) == ("ready", "ready")
        wait_until(lambda: state(victim.pid) == "T", "the subscriber stopped")
        wait_asleep(other.pid)
        victim.kill()
        pub.send(message(1))
        assert other.result() == 16
    assert not pub.all_readers_updated()

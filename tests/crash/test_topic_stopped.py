"""Publishers and subscribers that are stopped (SIGSTOP) at each step while others want their place, or go on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import MultiplePublishersError, SegmentError, StateError
from tests.crash.harness import ACCESSES, WRITES, Step, at_each_step, message, numbers_said, plan, state
from tests.crash.topics import RING, Topic, drain, flood
from tests.stress.roles import publisher, subscriber
from tests.support import DEADLINE_MS, Child, hear, say, wait_asleep, wait_until

MINE = "claim arm send:16:0 send:16:1 send:16:2", "claim arm send:200:0 send:16:1 send:16:2", "claim arm rows:64:0"
WRAPPING = "claim send:240:0 send:240:1 send:240:2 send:80:3 arm send:240:4"
BEGUN, SENT = "mq_ring_publisher_begin_message: stored &p->row->begun", "mq_ring_publisher_publish: stored &row->sent"


def in_progress(names: list[str]) -> list[bool]:
    """Return for each step whether a send has begun and not ended."""
    state, states = False, []
    for name in names:
        state = (state or name == BEGUN) and name != SENT
        states.append(state)
    return states


@pytest.mark.parametrize("operations", MINE)
def test_publisher_stopped_at_each_step_of_send_loses_ownership_safely(topic: Topic, operations: str) -> None:
    """What: the owner stops at a step of a send, another publisher connects, the owner goes on.

    Why: a newcomer may not write while the owner may still do so, and cannot know when it will.

    Failure would mean: two publishers wrote the same bytes; or the newcomer hung, or did not say who is in the way; or
    the owner lost its place to one that gave up.
    """
    with topic.another("trace") as trial:
        names = trial.points(operations)
    with ThreadPoolExecutor(len(names)) as pool:  # a newcomer waits a whole second, so they wait side by side
        tries = [pool.submit(stop_once, topic, operations, at, busy) for at, busy in enumerate(in_progress(names), 1)]
        errors = [attempt.exception() for attempt in tries]
    problems = [f"{name}: {error}" for name, error in zip(names, errors, strict=True) if error]
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


def stop_once(topic: Topic, operations: str, at: int, busy: bool) -> None:
    """Stop at one point; the newcomer must wait in vain if a send is in progress, else take over."""
    with topic.another(at) as place:
        subs = place.readers()
        owner = place.stopped(operations, WRITES, at)
        if busy:
            with pytest.raises(MultiplePublishersError, match=rf"\b{owner.pid}\b"):
                place.pub()
            owner.go_on()
            assert owner.end() == [], "the owner goes on as if nothing had been"
            sent, newcomer = [0, 1, 2], place.pub()
        else:
            newcomer = place.pub()
            sent = [*range(newcomer.stats().messages)]
            owner.go_on()
            refusal = owner.end()
            assert all(
                f"refused: topic {place.endpoint}" in line and f"process {os.getpid()} " in line for line in refusal
            ), refusal
            assert len(sent) == 3 or refusal, "the owner sent although another one has its place"
        flood(newcomer, range(100, 110))
        for kind, sub in subs.items():
            assert drain(sub) == [*sent, *range(100, 110)], kind
            assert sub.lost == 0


@pytest.mark.parametrize("point", ["mq_ring_publisher_send: half copied to payload", SENT.replace("sent", "bytes")])
def test_new_publisher_killed_while_waiting_for_stopped_owner_leaves_usable_topic(topic: Topic, point: str) -> None:
    """What: the owner stops in a send, the first newcomer dies waiting for it, then a second one comes, and the owner
    goes on with its send.

    Why: the first newcomer had put its own uid into write_uid already.

    Failure would mean: the second one looks only at the dead newcomer, which was sending nothing, and publishes where
    the owner still writes: a torn message.
    """
    sub = topic.sub()
    owner = topic.stopped("claim arm send:200:0", point)
    first = topic.driver("arm claim", "*never*")
    wait_until(lambda: topic.word(16) >> 32 & 0xFF != 1, "the first newcomer has claimed")
    first.process.kill()
    first.end(-signal.SIGKILL)
    attempt: Any = None
    with contextlib.suppress(MultiplePublishersError):
        attempt = topic.pub()
        attempt.send(message(7, 200))  # the owner still writes there
    owner.go_on()
    owner.end()
    drain(sub)  # finds a torn message first of all
    assert attempt is None, "two publishers wrote at once"
    second = topic.pub()
    second.send(message(7, 200))
    assert drain(sub) == [7]


@pytest.mark.parametrize(("operations", "publishes"), [(WRAPPING, 2), ("claim arm rows:8:0", 1)])
def test_publisher_with_stolen_ownership_during_send_publishes_nothing(
    topic: Topic, operations: str, publishes: int
) -> None:
    """What: the owner stops at each step of a send that wraps, before it publishes; write_uid becomes a stranger's.

    Why: a stock publisher asks nobody, and ours may be delayed for as long as the scheduler likes.

    Failure would mean: it publishes into a ring that is another one's.
    """
    with topic.another("trace") as trial:
        names = trial.points(operations)
    published = [at for at, name in enumerate(names, 1) if "stored &p->ring->write_pointer" in name]
    assert len(published) == publishes, names  # the wrap mark, and the message
    for at in range(1, published[-1]):
        with topic.another(at) as place:
            owner = place.stopped(operations, WRITES, at)
            before = msgq.stats.topic(place.endpoint).write_position
            place.write(16, 1 << 63 | os.getpid())
            owner.go_on()
            assert "process 0 " in owner.end()[0], names[at - 1]
            assert msgq.stats.topic(place.endpoint).write_position == before, names[at - 1]


STARTING = [
    "call: after lock",
    "mq_ring_publisher_claim_ring: exchanged &p->ring->write_uid",
    "mq_ring_publisher_start: stored*sent",
]


@pytest.mark.parametrize("point", STARTING)
def test_publisher_stopped_during_start_delays_only_other_connections(topic: Topic, point: str) -> None:
    """What: a publisher stops while it starts, holding the topic's lock; others want to connect.

    Why: the lock is never held for long by anybody who runs, but anybody can be stopped.

    Failure would mean: others hang for ever, or break into a start that is not done.
    """
    sub, former = topic.sub(), topic.pub()
    former.send(message(0))
    starter = topic.stopped("arm claim send:16:1", point)
    with ThreadPoolExecutor(2) as pool:
        attempts: list[Future[Any]] = [pool.submit(topic.pub), pool.submit(topic.sub)]
        for attempt in attempts:
            assert isinstance(attempt.exception(30), SegmentError)
    assert drain(sub) == [0]
    starter.go_on()
    assert starter.end() == []
    with pytest.raises(MultiplePublishersError):
        former.send(message(9))
    pub, late = topic.pub(), topic.sub()
    pub.send(message(2))
    assert (drain(sub), drain(late)) == ([1, 2], [2])


def test_stopped_publisher_does_not_block_new_subscribers(topic: Topic) -> None:
    """What: the owner is stopped in a send; three newcomers and three subscribers want to connect at once.

    Why: each newcomer waits a second for the send to end, and connects are one at a time.

    Failure would mean: a subscriber is refused, or a newcomer is not told who is in its way, because somebody else is
    waiting.
    """
    owner = topic.stopped("claim arm send:200:0", "mq_ring_publisher_send: half copied to payload")
    with ThreadPoolExecutor(6) as pool:
        pubs = [pool.submit(topic.pub) for _ in range(3)]
        subs = [pool.submit(topic.sub) for _ in range(3)]
        for attempt in pubs:
            error = attempt.exception(30)
            assert isinstance(error, MultiplePublishersError), repr(error)
            assert f"{owner.pid}" in str(error)
        sockets = [attempt.result(30) for attempt in subs]
    owner.go_on()
    owner.end()
    for sub in sockets:
        assert drain(sub) == [0]


def stop_in_reservation(endpoint: str, size: int) -> None:
    """Child: stop oneself in the middle of writing a message in place, then finish it."""
    with publisher(endpoint) as socket:
        with socket.reserve(size) as view:
            view[: size // 2] = b"a" * (size // 2)
            say(os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
            view[size // 2 :] = b"b" * (size - size // 2)
        socket.send(b"and another one")
        hear()


def test_publisher_stopped_in_reservation_loses_ownership_safely(topic: Topic) -> None:
    """What: the same with a real publisher that was writing in place.

    Why: a reservation may be open for as long as its owner likes.

    Failure would mean: a newcomer publishes into the middle of it.
    """
    sub = topic.sub()
    with Child(stop_in_reservation, topic.endpoint, 300) as owner:
        pid = owner.hear()
        with pytest.raises(MultiplePublishersError, match=rf"\b{pid}\b"):
            topic.pub()
        assert sub.receive(non_blocking=True) is None
        owner.kill(signal.SIGCONT)
        assert sub.receive() == b"a" * 150 + b"b" * 150
        assert sub.receive() == b"and another one"
        owner.say("leave")
        owner.result()
    assert msgq.stats.topic(topic.endpoint).data_bytes == RING


def test_tracked_publisher_stopped_before_mark_blocks_other_publishers(topic: Topic) -> None:
    """What: the victim stops before it sets the word, holding the lock; nobody else can publish meanwhile, so none can
    send an untracked message that it would then call tracked.
    """
    operations = "track arm claim send:16:3 close"
    with topic.another("trace") as trial:
        names = trial.points("track arm claim")
    sub = topic.sub()
    mark = names.index("mq_ring_side_decide_tracking: stored &side->tracked")
    victim = topic.stopped(operations, WRITES, mark)  # the step before it
    assert not sub.tracked
    victim.go_on()
    victim.end()  # another publisher that claims the topic before the victim's send would replace the victim
    with topic.driver("claim send:16:4 close") as other:
        other.end()
    assert sub.tracked
    found = [sub.receive_tracked() for _ in range(2)]
    assert [one and one.data for one in found] == [message(3), message(4)]
    with pytest.raises(StateError):
        msgq.pub_sock(topic.endpoint, tracked=False)


# ---- subscribers ----

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


@pytest.mark.parametrize("behind", [5, 70])
@pytest.mark.parametrize("conflate", [0, 1], ids=["plain", "conflate"])
@pytest.mark.parametrize(
    "meanwhile", [stay, lap, be_writing, lap_and_be_writing, close, lap_and_close, lap_and_restart]
)
def test_subscriber_stopped_at_each_step_of_receive_returns_no_overwritten_message(
    topic: Topic, meanwhile: Callable[[Topic, msgq.PubSocket], int], conflate: int, behind: int
) -> None:
    """What: a subscriber that is a few messages behind (or was lapped already) stops at each access to shared memory
    in turn; meanwhile the publisher does the worst; then the subscriber reads all there is.

    Why: between any two of its reads, everything may change.

    Failure would mean: it took a torn message for a good one, or its count went wrong.
    """

    def act(step: Step) -> list[str]:
        with topic.another(step.at) as place:
            pub = place.pub()
            flood(pub, range(3))
            operations = f"join:{conflate} ready arm receive:200 disarm receive:200 tell"
            victim = place.driver(operations, ACCESSES, step.at, signal.SIGSTOP)
            victim.wait_until_ready()
            flood(pub, range(behind))
            victim.proceed()
            sent = behind + (meanwhile(place, pub) if step.at and victim.stops() else 0)
            victim.go_on()
            lines = victim.end()
            assert numbers_said(lines, "received")[0] + numbers_said(lines, "missed")[0] == sent, lines
        return lines

    at_each_step(act)


def sleep_once(endpoint: str) -> int:
    """Child: sleep until a message comes."""
    with subscriber(endpoint) as socket:
        socket.setTimeout(DEADLINE_MS)
        say("ready")
        return len(socket.receive() or b"")


@pytest.mark.parametrize("laps", [0, 1, 3])
def test_subscriber_stopped_before_sleep_receives_message_sent_during_stop(
    topic: Topic, interposer: Path, laps: int
) -> None:
    """What: a subscriber stops just before the system call that puts it to sleep; meanwhile the publisher sends one
    message, or exactly a lap, so that the low half of write_pointer is the same again.

    Why: the kernel compares only 32 bits before it lets it sleep.

    Failure would mean: it sleeps although messages are there, and as it is no longer on record as sleeping, further
    messages do not wake it either.
    """

    def offset() -> int:
        return msgq.stats.topic(topic.endpoint).write_position[1]

    env = {"LD_PRELOAD": str(interposer), **plan(signal.SIGSTOP, 1, "call: before sleep")}
    pub = topic.pub()
    flood(pub, range(5))
    with Child(sleep_once, topic.endpoint, env=env) as sleeper:
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


def test_subscriber_killed_before_sleep_leaves_publisher_usable(topic: Topic, interposer: Path) -> None:
    """What: a subscriber stops when it has said that it will sleep, and is killed.

    Why: it leaves its bit in `eventcount`, and nobody to wake.

    Failure would mean: the publisher wakes nobody for ever, or somebody who sleeps as well is forgotten.
    """
    env = {"LD_PRELOAD": str(interposer), **plan(signal.SIGSTOP, 1, "call: before sleep")}
    pub = topic.pub()
    with Child(sleep_once, topic.endpoint, env=env) as victim, Child(sleep_once, topic.endpoint) as other:
        assert (victim.hear(), other.hear()) == ("ready", "ready")
        wait_until(lambda: state(victim.pid) == "T", "the subscriber stopped")
        wait_asleep(other.pid)
        victim.kill()
        pub.send(message(1))
        assert other.result() == 16
    assert not pub.all_readers_updated()

"""A publisher that is stopped (SIGSTOP) at each step while another one wants its place."""

from __future__ import annotations

import contextlib
import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import msgq
from msgq.errors import MultiplePublishersError, SegmentError
from tests.crash.victims import RING, WRITES, Driver, Topic, drain, flood, message, readers
from tests.stress.roles import publisher
from tests.support import Child, hear, say, wait_until

MINE = "claim arm send:16:0 send:16:1 send:16:2", "claim arm send:200:0 send:16:1 send:16:2", "claim arm rows:64:0"
WRAPPING = "claim send:240:0 send:240:1 send:240:2 send:80:3 arm send:240:4"
BEGUN, SENT = "mq_ring_publisher_begin_message: stored &p->row->begun", "mq_ring_publisher_publish: stored &row->sent"


def stopped(topic: Topic, operations: str, point: str = WRITES, at: int = 1) -> Driver:
    driver = topic.driver(operations, point, at, signal.SIGSTOP)
    driver.wait_stopped()
    return driver


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
        subs = dict(readers(place))
        owner = stopped(place, operations, at=at)
        if busy:
            with pytest.raises(MultiplePublishersError, match=rf"\b{owner.pid}\b"):
                place.pub()
            owner.go_on()
            assert owner.ended(0) == [], "the owner goes on as if nothing had been"
            sent, newcomer = [0, 1, 2], place.pub()
        else:
            newcomer = place.pub()
            sent = [*range(newcomer.stats().messages)]
            owner.go_on()
            refusal = owner.ended(0)
            assert not refusal or refusal == [f"refused 3 by {os.getpid()}"]
            assert len(sent) == 3 or refusal, "the owner sent although another one has its place"
        flood(newcomer, range(100, 110))
        for kind, sub in subs.items():
            assert drain(sub) == [*sent, *range(100, 110)], kind
            assert sub.lost == 0


@pytest.mark.parametrize("point", ["mq_ring_publisher_send: half copied to payload", SENT.replace("sent", "bytes")])
@pytest.mark.ci
def test_new_publisher_killed_while_waiting_for_stopped_owner_leaves_usable_topic(topic: Topic, point: str) -> None:
    """What: the owner stops in a send, the first newcomer dies waiting for it, then a second one comes, and the owner
    goes on with its send.

    Why: the first newcomer had put its own uid into write_uid already.

    Failure would mean: the second one looks only at the dead newcomer, which was sending nothing, and publishes where
    the owner still writes: a torn message.
    """
    sub = topic.sub()
    owner = stopped(topic, "claim arm send:200:0", point)
    first = topic.driver("arm claim", "* ordered *", 1 << 30)
    wait_until(lambda: write_uid(topic) >> 32 & 0xFF != 1, "the first newcomer has claimed")
    first.process.kill()
    first.ended(-signal.SIGKILL)
    attempt: Any = None
    with contextlib.suppress(MultiplePublishersError):
        attempt = topic.pub()
        attempt.send(message(7, 200))  # where the owner still writes
    owner.go_on()
    owner.ended(0)
    drain(sub)  # finds a torn message first of all
    assert attempt is None, "two publishers wrote at once"
    second = topic.pub()
    second.send(message(7, 200))
    assert drain(sub) == [7]


def write_uid(topic: Topic) -> int:
    with open(topic.files[0], "rb") as file:
        file.seek(16)
        return int.from_bytes(file.read(8), "little")


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
            owner = stopped(place, operations, at=at)
            before = msgq.stats.topic(place.endpoint).write_position
            with open(place.files[0], "r+b") as file:
                file.seek(16)
                file.write((1 << 63 | os.getpid()).to_bytes(8, "little"))
            owner.go_on()
            assert owner.ended(0) == ["refused 3 by 0"], names[at - 1]
            assert msgq.stats.topic(place.endpoint).write_position == before, names[at - 1]


STARTING = [
    "claim: holds lock",
    "mq_ring_publisher_claim_ring: exchanged &p->ring->write_uid",
    "mq_ring_publisher_start: stored*sent",
]


@pytest.mark.parametrize("point", STARTING)
@pytest.mark.ci
def test_publisher_stopped_during_start_delays_only_other_connections(topic: Topic, point: str) -> None:
    """What: a publisher stops while it starts, holding the topic's lock; others want to connect.

    Why: the lock is never held for long by anybody who runs, but anybody can be stopped.

    Failure would mean: others hang for ever, or break into a start that is not done.
    """
    sub, former = topic.sub(), topic.pub()
    former.send(message(0))
    starter = stopped(topic, "arm claim send:16:1", point)
    with ThreadPoolExecutor(2) as pool:
        attempts: list[Future[Any]] = [pool.submit(topic.pub), pool.submit(topic.sub)]
        for attempt in attempts:
            assert isinstance(attempt.exception(30), SegmentError)
    assert drain(sub) == [0]
    starter.go_on()
    assert starter.ended(0) == []
    with pytest.raises(MultiplePublishersError):
        former.send(message(9))
    pub, late = topic.pub(), topic.sub()
    pub.send(message(2))
    assert (drain(sub), drain(late)) == ([1, 2], [2])


@pytest.mark.ci
def test_stopped_publisher_does_not_block_new_subscribers(topic: Topic) -> None:
    """What: the owner is stopped in a send; three newcomers and three subscribers want to connect at once.

    Why: each newcomer waits a second for the send to end, and connects are one at a time.

    Failure would mean: a subscriber is refused, or a newcomer is not told who is in its way, because somebody else is
    waiting.
    """
    owner = stopped(topic, "claim arm send:200:0", "mq_ring_publisher_send: half copied to payload")
    with ThreadPoolExecutor(6) as pool:
        pubs = [pool.submit(topic.pub) for _ in range(3)]
        subs = [pool.submit(topic.sub) for _ in range(3)]
        for attempt in pubs:
            error = attempt.exception(30)
            assert isinstance(error, MultiplePublishersError), repr(error)
            assert f"{owner.pid}" in str(error)
        sockets = [attempt.result(30) for attempt in subs]
    owner.go_on()
    owner.ended(0)
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

"""Publishers and subscribers that are killed by the hundred, before a wake, or while they describe their messages."""

from __future__ import annotations

import signal
import struct

import pytest

import msgq
from msgq import stats
from tests.crash.harness import Step, at_each_step, state
from tests.crash.topics import Topic, drain, flood
from tests.support import wait_until

SCHEMA_WRITES = "*mq_schema_*: [!bl]*"
SIZES = {"F": 100, "N": 3000, "O": 20_000}


def describe(letter: str, size: int | None = None) -> str:
    """Return the operations of a publisher that describes its messages."""
    return f"schema:{size or SIZES[letter]}:{ord(letter)} arm claim close disarm"


def schema(letter: str, size: int | None = None) -> msgq.Schema:
    return msgq.Schema(letter, letter, letter.encode() * (size or SIZES[letter]))


def schema_of(topic: Topic) -> msgq.Schema | None:
    return stats.topic(topic.endpoint).schema


def slots(topic: Topic) -> list[int]:
    """Return the uids in the ring's 15 slots."""
    return [*struct.unpack_from("<15Q", topic.path.read_bytes()[:384], 264)]


def test_new_subscribers_reuse_slots_of_300_killed_subscribers(topic: Topic) -> None:
    """What: 300 subscribers are killed, each at the next step of joining or leaving; then 20 living ones join.

    Why: there are 128 entries and 15 slots.

    Failure would mean: after some crashes nobody is seen or signalled any more.
    """
    pub = topic.pub()
    operations = "arm join announce leave"
    steps = len(topic.points(operations))
    for i in range(300):  # the number of steps depends on the remains of the others
        topic.driver(operations, at=1 + i % steps).end(0, -signal.SIGKILL)
    subs = [topic.sub() for _ in range(20)]
    flood(pub, range(3))
    assert all(drain(sub) == [0, 1, 2] for sub in subs)
    pub.wait_for_readers(0, n=20)
    snapshot = stats.topic(topic.endpoint)
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
    steps, sub = len(topic.points(operations)), topic.sub()
    total = 0
    for i in range(100):
        topic.driver(operations, at=1 + i % steps).end(0, -signal.SIGKILL)
        total += len(drain(sub))
    pub = topic.pub()
    assert pub.stats().messages == 2 + total
    pub.send(b"")
    assert drain(sub) == [0]
    assert sub.lost == 0
    publisher = stats.topic(topic.endpoint).publisher
    assert publisher is not None
    assert publisher.alive


def test_new_publisher_wakes_sleepers_of_publisher_killed_before_wake(topic: Topic) -> None:
    """What: a publisher has cleared the sleepers' bit and dies before it wakes them; a new publisher starts.

    Why: nothing in shared memory says any more that somebody sleeps.

    Failure would mean: sleepers sleep on, with a message there, until by luck somebody else's sleep wakes them: a
    starting publisher must wake everybody, whatever the bits say.
    """
    sleeper = topic.driver("join doze", at=1 << 30)
    wait_until(lambda: state(sleeper.pid) == "S" and topic.side.read_bytes()[64] & 1, "the subscriber sleeps")
    topic.kill("arm claim", "mq_eventcount_notify: exchanged*")
    topic.pub()
    sleeper.end()


def test_schema_writer_killed_at_each_step_leaves_valid_schema(topic: Topic) -> None:
    """What: a writer dies at each of its points, after another schema was there; then comes the next one.

    Why: an odd turn that nobody ends would hide the schema from every tool until somebody describes the topic anew.

    Failure would mean: `msgq info`, the recorder and decoders lose the schema with a publisher that was killed.
    """
    seen = set()

    def act(step: Step) -> list[str]:
        with topic.another(step.at) as trial:
            trial.driver(describe("F"), "*never*").end()
            lines = trial.driver(describe("N"), SCHEMA_WRITES, step.at).end(-signal.SIGKILL if step.at else 0)
            left = schema_of(trial)
            assert left in (schema("F"), schema("N"))
            seen.add(left)
            trial.driver(describe("O"), "*never*").end()
            assert schema_of(trial) == schema("O")
        return lines

    at_each_step(act, ["mq_schema_write_shadow: stored parts->shadow"])
    assert seen == {schema("F"), schema("N")}


@pytest.mark.parametrize("second", SIZES)
def test_second_schema_writer_killed_during_repair_leaves_valid_schema(topic: Topic, second: str) -> None:
    """What: a second writer dies at each of its points, after a first one that died half-way."""

    def act(step: Step) -> list[str]:
        with topic.another(step.at) as trial:
            trial.driver(describe("F"), "*never*").end()
            trial.kill(describe("N"), "mq_schema_write_in_place: half copied to parts->data")
            assert schema_of(trial) == schema("N")
            lines = trial.driver(describe(second), SCHEMA_WRITES, step.at).end(-signal.SIGKILL if step.at else 0)
            assert schema_of(trial) in (schema("N"), schema(second))
        return lines

    at_each_step(act)


def test_publisher_restart_with_same_schema_writes_no_schema(topic: Topic) -> None:
    topic.driver(describe("O"), "*never*").end()
    assert topic.points(describe("O"), SCHEMA_WRITES) == []


def test_schema_too_large_for_shadow_copy_is_written(topic: Topic) -> None:
    topic.driver(f"{describe('F')} {describe('O', 46_000)}", "*never*").end()
    assert schema_of(topic) == schema("O", 46_000)
    topic.driver(describe("N"), "*never*").end()
    assert schema_of(topic) == schema("N")

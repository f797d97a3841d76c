"""A publisher that is killed at each step; the next one, and those who subscribe, must not notice more than needed."""

from __future__ import annotations

import pytest

import msgq
from tests.crash.victims import Topic, drain, flood, message, readers

#: Sizes of the messages that are read when the victim comes, and what it does; after "arm" step by step. Its messages
#: go on with the next number. "announce" is a sleeper to wake.
SMALL = [16] * 6
SCENES = {
    "first start": (SMALL, "arm claim"),
    "start with sleeper": (SMALL, "join announce arm claim"),
    "restart": (SMALL, "claim close arm claim"),
    "send": (SMALL, "claim send:16:6 join announce arm send:16:7"),
    "send with grant extension": (SMALL, "claim send:16:6 arm send:104:7"),
    "send with wrap": ([240, 240, 240, 80], "claim arm send:240:4"),
    "batch": (SMALL, "claim arm batch:16:6"),
    "batch with grant extension": (SMALL, "claim arm batch:120:6"),
    "batch with wrap": ([240, 240, 240], "claim arm batch:96:3"),
    "rows": (SMALL, "claim arm rows:16:6"),
    "rows with grant extension": (SMALL, "claim arm rows:120:6"),
    "rows with wrap": ([240, 240, 240], "claim arm rows:96:3"),
    "close": (SMALL, "claim send:16:6 join announce arm close"),
}

MEMBARRIER = "mq_ring_publisher_claim_ring: ordered membarrier"  # a step only if another publisher has a row
#: The steps of docs/internals/topic-protocol.md that must be among the points, or this test has lost its subject.
NAMED = {
    "first start": [
        "claim: holds lock",
        "mq_participant_write: stored &participant->uid",
        "mq_ring_publisher_claim_ring: exchanged &p->ring->write_uid",
        "mq_ring_publisher_start: stored &p->row->sent",
        "claim: gave back lock",
    ],
    "send": [
        "mq_ring_publisher_begin_message: stored &p->row->begun",
        "mq_ring_publisher_begin_message: stored (mq_u64 *)message",
        "mq_ring_publisher_send: half copied to payload",
        "mq_ring_publisher_send: copied to payload",
        "mq_ring_publisher_publish: stored &p->ring->write_pointer",
        "mq_ring_publisher_publish: stored &row->sent",
        "mq_eventcount_notify: exchanged word",
    ],
    "send with grant extension": ["mq_ring_publisher_announce_limit: stored &side->write_limit"],
    "send with wrap": [
        "mq_ring_publisher_extend_grant: stored mark",
        "mq_ring_publisher_extend_grant: stored &p->ring->write_pointer",
    ],
    "rows": [
        "mq_ring_publisher_stage_sized: stored &p->row->begun",
        "mq_ring_publisher_stage_sized: stored (mq_u64 *)message",
        "mq_ring_publisher_stage_sized: half copied to message + 8",
    ],
    "close": ["mq_ring_publisher_close: exchanged &p->ring->write_uid"],
}


def prepare(topic: Topic, sizes: list[int], former_lives: bool) -> None:
    """Let a first publisher send a few messages."""
    pub = topic.pub()
    for number, size in enumerate(sizes):
        pub.send(message(number, size))
    if not former_lives:
        pub.close()


def steps(topic: Topic, scene: str, former_lives: bool) -> list[str]:
    """Return the names of the points that the victim passes."""
    sizes, operations = SCENES[scene]
    with topic.another("trace") as trial:
        _subs = dict(readers(trial))
        prepare(trial, sizes, former_lives)
        return trial.points(operations)


@pytest.mark.parametrize("former_lives", [True, False], ids=["previous publisher lives", "previous publisher closed"])
@pytest.mark.parametrize("scene", SCENES)
def test_publisher_killed_at_each_step_leaves_usable_topic(topic: Topic, scene: str, former_lives: bool) -> None:
    """What: the victim dies at each of its points in turn. Subscribers that were in place drain the ring, a new
    publisher goes on, and then laps them.

    Why: a publisher may die anywhere, and nobody has a say in when.

    Failure would mean: a message was lost, torn or repeated because a publisher died; or the count of messages,
    and so `lost`, went wrong with it.
    """
    names = steps(topic, scene, former_lives)
    for name in NAMED.get(scene, []) + [MEMBARRIER] * (scene == "first start" and former_lives):
        assert name in names, f"no such step any more; the steps are {names}"
    problems = []
    for at, name in enumerate(names, 1):
        with topic.another(at) as place:
            try:
                check(place, *SCENES[scene], at, former_lives)
            except (AssertionError, msgq.IpcError) as problem:  # all of them: the report shows which steps fail
                problems.append(f"after step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


def check(topic: Topic, sizes: list[int], operations: str, at: int, former_lives: bool) -> None:
    """Kill at one point and go on."""
    subs = dict(readers(topic))
    prepare(topic, sizes, former_lives)
    counts = {kind: drain(sub) for kind, sub in subs.items()}
    topic.kill(operations, at=at)
    for kind, sub in subs.items():
        counts[kind] += drain(sub)
    whole = len(counts["passive"])
    assert all(got == [*range(whole)] for got in counts.values()), counts
    pub, late = topic.pub(), topic.sub()
    assert pub.stats().messages == whole, f"the new publisher counts {pub.stats().messages} messages, not {whole}"
    assert [drain(sub) for sub in subs.values()] == [[], []]
    assert pub.all_readers_updated(), "everybody has read everything"
    flood(pub, range(100, 110))
    for kind, sub in [*subs.items(), ("late", late)]:
        assert drain(sub) == [*range(100, 110)], kind
        assert sub.lost == 0, kind
    assert pub.all_readers_updated()
    flood(pub, range(1000, 1300))  # several laps
    for kind, sub in [*subs.items(), ("late", late)]:
        got = drain(sub)
        assert got == [*range(1300 - len(got), 1300)], kind
        expected = 310 + (0 if kind == "late" else whole)
        assert sub.lost is not None, f"{kind}: lost is unknown"
        assert sub.stats().received + sub.lost == expected, f"{kind}: {sub.stats()} of {expected}"


@pytest.mark.parametrize("succeeded", [True, False], ids=["new publisher", "no publisher"])
def test_subscriber_after_killed_send_skips_overwritten_messages(topic: Topic, succeeded: bool) -> None:
    """What: the victim dies at each step of a large message, the first of a lap, that overwrites what a subscriber has
    not read yet.

    Why: the bytes stay, though the message was never published, and only the limit tells of them.

    Failure would mean: the subscriber takes the dead one's bytes for its own next message; that happens when a new
    publisher announces less than the dead one did.
    """
    operations = "claim arm send:320:40"
    with topic.another("trace") as trial:
        prepare(trial, [16] * 40, former_lives=False)
        names = trial.points(operations)
    assert "mq_ring_publisher_extend_grant: stored mark" in names
    for at, name in enumerate(names, 1):
        with topic.another(at) as place:
            subs = dict(readers(place))
            prepare(place, [16] * 40, former_lives=False)
            place.kill(operations, at=at)
            if succeeded:
                place.pub()
            for kind, sub in subs.items():
                got = drain(sub)
                assert sub.lost is not None, f"{kind}, {name}: lost is unknown"
                assert got == [*range(sub.lost, sub.lost + len(got))], f"{kind}, {name}"
                assert sub.lost + len(got) in (40, 41), f"{kind}, {name}"

"""A publisher that is killed while it makes its topic a tracked one, or sends there."""

from __future__ import annotations

import pytest

import msgq
from msgq.errors import StateError
from tests.crash.victims import Topic, drain, message, readers

SET = "mq_ring_side_decide_tracking: stored &side->tracked"
#: What the victim does, and a step that must be among its points.
SCENES = {
    "start": ("track arm claim", SET),
    "first message": ("track claim arm send:16:0", "mq_stamps_write: half copied to payload - sizeof *stamps"),
    "message with wrap": (
        "track claim " + "send:208:0 " * 4 + "arm send:208:0",
        "mq_ring_publisher_extend_grant: stored mark",
    ),
}


@pytest.mark.parametrize("wanted", [True, None], ids=["tracked", "tracking unset"])
@pytest.mark.parametrize("scene", SCENES)
def test_tracked_publisher_killed_at_each_step_leaves_usable_topic(
    topic: Topic, scene: str, wanted: bool | None
) -> None:
    """What: the victim dies at each of its points in turn; who subscribed before it drains the ring, and a new
    publisher goes on.

    Why: subscribers go by one word to tell stamps from payloads, and it is set while they are there.

    Failure would mean: stamps show up as payload, or payload is taken for stamps; or nobody can publish any more.
    """
    operations, named = SCENES[scene]
    with topic.another("trace") as trial:
        names = trial.points(operations)
    assert named in names, names
    seen = set()
    for at, name in enumerate(names, 1):
        with topic.another(at) as place:
            subs = dict(readers(place))
            place.kill(operations, at=at)
            for sub in subs.values():
                assert set(drain(sub)) <= {0}, name
            pub = place.pub(tracked=wanted)
            seen.add(pub.tracked)
            lost = [sub.lost for sub in subs.values()]
            counts = [sub.stats().received + (sub.lost or 0) for sub in subs.values()]
            assert counts == [pub.stats().messages] * 2, name
            assert all(sub.tracked == pub.tracked for sub in subs.values()), name
            for number in range(20):  # more than a lap
                pub.send(message(number, 100))
                for kind, sub in subs.items():
                    assert drain(sub) == [number], f"{name}, {kind}"
            assert [sub.lost for sub in subs.values()] == lost, name
            if pub.tracked:
                pub.send(message(7), origin_time=7)
                assert [sub.receive_tracked().origin_time for sub in subs.values()] == [7, 7], name  # type: ignore[union-attr]
    assert seen == ({True, False} if wanted is None and scene == "start" else {True})


def test_tracked_publisher_stopped_before_mark_blocks_other_publishers(topic: Topic) -> None:
    """What: the victim stops before it sets the word, holding the lock; nobody else can publish meanwhile, so none can
    send an untracked message that it would then call tracked.
    """
    operations = "track arm claim send:16:3 close"
    with topic.another("trace") as trial:
        names = trial.points("track arm claim")
    before = names[names.index(SET) - 1]
    sub = topic.sub()
    victim = topic.driver(operations, before, names[: names.index(SET)].count(before), 19)
    victim.wait_stopped()
    assert not sub.tracked
    victim.go_on()
    victim.ended(0)  # another publisher that claims the topic before the victim's send would replace the victim
    with topic.driver("claim send:16:4 close") as other:
        other.ended(0)
    assert sub.tracked
    found = [sub.receive_tracked() for _ in range(2)]
    assert [one and one.data for one in found] == [message(3), message(4)]
    with pytest.raises(StateError):
        msgq.pub_sock(topic.endpoint, tracked=False)

"""Channels: how many may hold views, and what a publisher does whose slots are all held.

Random traffic (`test_traffic.py`) has too few subscribers for these limits, and accepts refused messages.
"""

from __future__ import annotations

import random

import pytest

from msgq.channel import Channel
from msgq.errors import PoolExhaustedError, TooManySubscribersError
from msgq.impl.channel.core import Sample, Subscriber
from tests.stress.process_group import ProcessGroup
from tests.support import DEADLINE, LONGER, Task, hear, say

# ---- the processes ----


def copy_many(name: str, count: int, messages: int) -> list[int]:
    """Be many subscribers that copy; each receives so many messages."""
    channel = Channel(name, node="many")
    subscribers = [channel.subscriber() for _ in range(count)]
    say("ready")
    return [_receive_all(one, messages) for one in subscribers]


def _receive_all(subscriber: Subscriber, messages: int) -> int:
    for _ in range(messages):
        assert subscriber.receive(DEADLINE) is not None
    assert (subscriber.receive(0), subscriber.lost) == (None, 0)
    return messages


def view_many(name: str, count: int) -> int:
    """Be many subscribers that take views, one each, and stay."""
    channel = Channel(name, node="viewers")
    subscribers = [channel.subscriber(history=1) for _ in range(count)]
    views = [subscriber.receive_view(DEADLINE) for subscriber in subscribers]
    say(len([view for view in views if view is not None]))
    hear()
    return len(subscribers)


def keep(name: str, count: int) -> int:
    """Keep the views of the messages that come, so many at most; let one go whenever the parent says so."""
    subscriber = Channel(name, node="keeper").subscriber(max_views=count)
    say("ready")
    views: list[Sample] = []
    while len(views) < count and hear() == "take":
        view = subscriber.receive_view(DEADLINE)
        assert view is not None
        views.append(view)
        say(len(views))
    while views and hear() == "release":
        views.pop(0).release()
        say(len(views))
    return len(views)


# ---- the tests ----


def test_channel_refuses_65th_view_subscriber_until_one_dies(scene: ProcessGroup, endpoint: str) -> None:
    """What: 64 subscribers in four processes take a view each. The next one gets none, until a process is killed."""
    channel = Channel(endpoint)
    with channel.publisher() as publisher, channel.subscriber() as one_more:
        publisher.send(b"first")
        viewers = [scene.start_child(view_many, endpoint, 16) for _ in range(4)]
        assert [viewer.hear() for viewer in viewers] == [16] * 4
        assert [one.views for one in channel.diagnose().viewers] == [1] * 64
        with pytest.raises(TooManySubscribersError, match="64 subscribers with views"):
            one_more.receive_view(0)
        assert one_more.receive(0) == b"first", "it can copy"
        viewers[0].kill()
        publisher.send(b"second")
        with one_more.receive_view(0) as view:  # it is there
            assert bytes(view) == b"second"
        assert len([one for one in channel.diagnose().viewers if one.participant.alive]) == 49
        for viewer in viewers[1:]:
            viewer.say("over")
            assert viewer.result() == 16


def test_channel_delivers_all_messages_to_300_copying_subscribers(scene: ProcessGroup, endpoint: str) -> None:
    """What: three processes have a hundred subscribers each; all get every message of a burst that fits."""
    channel = Channel(endpoint)
    readers = scene.start_all([(copy_many, endpoint, 100, 64)] * 3)
    assert len(channel.diagnose().subscribers) == 64
    assert channel.diagnose().opened, "the others are not listed"
    with channel.publisher() as publisher:
        publisher.send_many([b"%d" % i for i in range(64)])
        assert [reader.result() for reader in readers] == [[64] * 100] * 3


def test_publisher_without_free_slots_continues_after_release_of_view(scene: ProcessGroup, endpoint: str) -> None:
    """What: nine subscribers want to keep eight views each; the publisher has 66 slots.

    Why: the publisher must not write into any of them, must say who holds how many, and must go on when one is let
    go; larger messages go on at once, from another pool.
    """
    channel = Channel(endpoint)
    with channel.publisher() as publisher:
        assert publisher.slots == 66
        keepers = []
        for kept in [8] * 8 + [2]:
            keepers.append(keeper := scene.start(keep, endpoint, 8))
            for number in range(kept):
                publisher.send(b"x")
                keeper.say("take")
                assert keeper.hear() == number + 1
        with pytest.raises(PoolExhaustedError, match="all 66 slots") as error:
            publisher.send(b"x")
        for keeper, kept in zip(keepers, [8] * 8 + [2], strict=True):
            assert f"{keeper.pid} holds {kept}" in str(error.value)
        with pytest.raises(PoolExhaustedError):
            publisher.send(b"x", timeout=0.05)
        waiting = Task(lambda: publisher.send(b"x", timeout=DEADLINE))
        waiting.wait_asleep()
        keepers[3].say("release")
        assert waiting.result() == channel.messages + 63
        assert publisher.refused == 2
        publisher.send(b"x" * 10_000)
        assert publisher.slots == 66
        held = {one.participant.pid: one.views for one in channel.diagnose().viewers}
        assert held == {keeper.pid: kept for keeper, kept in zip(keepers, [8, 8, 8, 7, 8, 8, 8, 8, 2], strict=True)}


@pytest.mark.nightly
def test_slots_held_by_killed_subscribers_return_to_publishers(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: again and again a subscriber that holds eight of ten slots is killed, while two publishers go on."""
    rng, channel = random.Random(seed), Channel(endpoint, capacity=32)
    with channel.publisher(slots=10) as publisher, channel.publisher(slots=10) as other:
        for _ in range(int(15 * LONGER)):
            keeper = scene.start(keep, endpoint, 8)
            for number in range(rng.randrange(1, 9)):
                rng.choice((publisher, other)).send(b"x")
                keeper.say("take")
                assert keeper.hear() == number + 1
            keeper.kill()
            for _ in range(200):
                publisher.send(b"x")
                other.send(b"x")
        assert (publisher.refused, other.refused) == (0, 0)
        assert sum(one.views for one in channel.diagnose().viewers) <= 16, (
            "what is in limbo is cleared when it is needed"
        )

"""Channels with many processes: each message is accounted for, whoever comes, goes, keeps views, dies or is stopped."""

from __future__ import annotations

import random
import signal

import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import PoolExhaustedError, TooManySubscribersError
from tests.stress import channels
from tests.stress.process_group import ProcessGroup, finish
from tests.support import DEADLINE, LONGER, Task, wait_until


@pytest.mark.parametrize("count", [1000, pytest.param(int(8000 * LONGER), marks=pytest.mark.nightly)])
def test_channel_delivers_whole_messages_while_participants_join_and_leave(
    scene: ProcessGroup, endpoint: str, seed: int, count: int
) -> None:
    """What: publishers send messages of all sizes, by copies and several loans, leave and join, and grow; subscribers
    of every kind leave and join.

    Why: rows and pools change hands all the time, while entries of the former owners are in the order.

    Failure would mean: a message that is torn, of another publisher than it says, twice, out of order, or neither
    received nor lost.
    """
    channel = Channel(endpoint, capacity=64)
    readers = scene.start_all([(channels.subscribe, endpoint, kind, seed + i) for i, kind in enumerate(channels.KINDS)])
    sources = scene.start_all([(channels.publish, endpoint, i, count, seed - i) for i in range(4)])
    for source in sources:
        source.say("go")
    positions = [source.result()["positions"] for source in sources]
    reports = finish(readers)
    for report in reports:
        print({name: value for name, value in report.items() if name != "sample"})
    assert all(mine == sorted(mine) for mine in positions), "a publisher's messages are in its order"
    everything = sorted(position for mine in positions for position in mine)
    assert everything == list(range(64, 64 + channel.messages)), "each message has a position of its own"
    for report in reports:
        assert report["received"] > 0, report["kind"]
        for position, source, number in report["sample"]:
            assert positions[source][number] == position, report["kind"]
    found = channel.diagnose()
    assert not [one for one in found.participants if one[1].alive is not True], "all have left"
    assert len(found.publishers) <= 9, "each who joins removes the pools of the others"
    assert found.orphans == ()


def test_channel_refuses_65th_view_subscriber_until_one_dies(scene: ProcessGroup, endpoint: str) -> None:
    """What: 64 subscribers in four processes take a view each. The next one gets none, until a process is killed."""
    channel = Channel(endpoint)
    with channel.publisher() as publisher, channel.subscriber() as one_more:
        publisher.send(b"first")
        viewers = [scene.start_child(channels.view_many, endpoint, 16) for _ in range(4)]
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
    readers = scene.start_all([(channels.copy_many, endpoint, 100, 64)] * 3)
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
            keepers.append(keeper := scene.start(channels.keep, endpoint, 8))
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
            keeper = scene.start(channels.keep, endpoint, 8)
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


def wait_for_messages(channel: Channel, count: int) -> None:
    """Return when so many more were published."""
    before = channel.messages
    wait_until(lambda: channel.messages >= before + count, "others publish", interval=0)


@pytest.mark.nightly
def test_stopped_channel_publishers_do_not_block_other_publishers(
    scene: ProcessGroup, endpoint: str, seed: int
) -> None:
    """What: two processes publish without a pause, and are stopped at random moments; meanwhile this one publishes and
    receives.

    Why: a publisher may be stopped between its slot and its position, its position and the tail, the tail and the wake.

    Failure would mean: somebody waits for one who does nothing, or a position that is neither received nor lost.
    """
    rng, channel = random.Random(seed), Channel(endpoint, capacity=64)
    with channel.publisher() as publisher, channel.subscriber() as subscriber:
        floods = scene.start_all([(channels.flood, endpoint)] * 2)
        for _ in range(int(100 * LONGER)):
            wait_for_messages(channel, rng.randrange(5000))
            stopped = rng.sample(floods, rng.randrange(1, 3))
            for flood in stopped:
                flood.kill(signal.SIGSTOP)
            for number in range(20):
                position = publisher.send(b"mine %d" % number)
                while (last := subscriber.last) is None or last.position < position:
                    assert subscriber.receive(DEADLINE) is not None or subscriber.position > position
                    if subscriber.position > position:
                        break
            with channel.subscriber(history=8) as late:
                assert late.receive(0) is not None, "one who comes now"
            assert msgq.stats.channel(endpoint).messages > 0
            for flood in stopped:
                flood.kill(signal.SIGCONT)
        sent = publisher.sent + sum(finish(floods))
        assert sent == channel.messages
        subscriber.receive_many()  # perhaps nothing: the floods may have ended before they published once more
        assert subscriber.received + subscriber.lost == sent

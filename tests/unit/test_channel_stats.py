"""What others see of a channel: `Channel.diagnose`, `msgq.stats.channel`, `msgq.stats.channels`."""

from __future__ import annotations

import dataclasses
import mmap
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import msgq
from msgq.channel import Channel, Node
from msgq.common import shm_paths
from msgq.common.schema import Schema
from msgq.common.stats.channel import ChannelStats, ChannelSubscriber
from msgq.errors import MsgqError, PoolExhaustedError, SegmentError
from msgq.impl.channel import Subscriber
from tests.support import SHM, Child, Task, hear, in_fork, say


@pytest.fixture
def channel(endpoint: str) -> Iterator[Channel]:
    with Channel(endpoint, capacity=16, node="tester") as channel:
        yield channel


def publish(name: str) -> None:
    """Child: publish some messages, and stay."""
    publisher = Channel(name, node="child").publisher()
    publisher.send_many([b"x" * 10] * 5)
    say("up")
    hear()


def hold_views(name: str) -> None:
    """Child: hold two views, and stay."""
    subscriber = Channel(name, node="watcher").subscriber(history=8)
    views = [subscriber.receive_view(0) for _ in range(2)]
    say(len(views))
    hear()


def subscriber_of_node(channel: Channel, node: str) -> ChannelSubscriber:
    (found,) = (one for one in channel.diagnose().subscribers if one.node == node and one.participant.alive)
    return found


def test_channel_stats_of_unused_channel_have_no_participants(channel: Channel) -> None:
    found = channel.diagnose()
    assert (found.name, found.prefix, found.path) == (channel.name, "", str(SHM / f"msgqchan_{channel.name}"))
    assert (found.kind, found.capacity, found.stamps, found.max_publishers) == ("pubsub", 16, None, None)
    assert (found.messages, found.publishers, found.subscribers, found.viewers) == (0, (), (), ())
    assert (found.creator, found.created_ns) == (("tester", os.getpid()), channel.created_ns)
    assert (found.hub_bytes, found.pool_bytes, found.orphans) == (os.stat(found.path).st_size, 0, ())


def test_channel_stats_show_participants_and_their_counts(channel: Channel) -> None:
    channel.replace_schema(Schema("words", "text"))
    with channel.publisher(slots=4, slot_bytes=100) as publisher, channel.subscriber() as subscriber:
        publisher.send_many([b"x" * 10] * 3)
        subscriber.receive(0)
        found = channel.diagnose()
        assert (found.max_publishers, found.max_subscribers, found.stamps, found.messages) == (63, None, True, 3)
        assert found.schema == Schema("words", "text")
        (row,) = found.publishers
        assert (row.participant.pid, row.participant.alive, row.node) == (os.getpid(), True, "tester")
        assert (row.slots, row.slot_bytes, row.sent, row.bytes, row.messages) == (4, 100, 3, 30, 3)
        assert (row.refused, row.evicted, row.left, row.superseded) == (0, 0, False, False)
        assert row.pool_bytes == found.pool_bytes == os.stat(row.path).st_size
        (listed,) = found.subscribers
        assert (listed.node, listed.cursor, listed.received, listed.lag, listed.lost) == ("tester", 17, 1, 2, 0)
        publisher.send_many([b""] * 3)
        (row,) = channel.diagnose().publishers
        assert (row.evicted, row.messages) == (2, 4), "the pool has four slots"
    (row,) = channel.diagnose().publishers
    assert (row.left, row.participant.alive, row.messages) == (True, False, 4)
    assert channel.diagnose().subscribers == ()


def test_channel_stats_show_losses_before_next_receive(channel: Channel) -> None:
    """And as the subscriber itself tells them when it looks."""
    node = Node("late")
    early = node.subscribe(channel.name)  # before the first publisher: its cursor is not known
    with channel.publisher(slots=8) as publisher:
        publisher.send_many([b"x"] * 10)
        history = Node("history").subscribe(channel.name, history=16)
        publisher.send_many([b"x"] * 5)
        plain = Node("plain").subscribe(channel.name)
        publisher.send_many([b"x"] * 23)
        told = {node: subscriber_of_node(channel, node) for node in ("late", "history", "plain")}
        for name, subscriber in (("late", early), ("history", history), ("plain", plain)):
            received = len(subscriber.receive_many())
            assert (told[name].lost, told[name].lag) == (subscriber.lost, received), name
            seen = subscriber_of_node(channel, name)
            assert (seen.lost, seen.lag, seen.received) == (subscriber.lost, 0, received)
            subscriber.close()
    assert [told[name].lost for name in ("late", "history", "plain")] == [38 - 8, 28 - 8, 23 - 8]


def test_channel_stats_show_skipped_messages_immediately(channel: Channel) -> None:
    """Also when nothing was received behind it: one's own messages, and what was evicted."""
    with channel.publisher() as publisher, channel.subscriber(own=False) as subscriber:
        publisher.send_many([b"x"] * 5)
        assert subscriber.receive(0) is None
        listed = subscriber_of_node(channel, "tester")
        assert (listed.cursor, listed.lag, listed.lost) == (subscriber.position, 0, 0)


def test_channel_stats_show_subscriber_of_forked_child(channel: Channel) -> None:
    with channel.publisher() as publisher, channel.subscriber() as subscriber:
        publisher.send_many([b"x"] * 5)
        assert len(subscriber.receive_many(3)) == 3

        def look() -> None:
            subscriber.receive(0)
            ours = [one for one in channel.diagnose().subscribers if one.participant.pid == os.getpid()]
            assert [(one.cursor, one.lag) for one in ours] == [(subscriber.position, 1)]

        assert in_fork(look) == 0
        assert (subscriber_of_node(channel, "tester").cursor, subscriber_of_node(channel, "tester").lag) == (19, 2)


def test_channel_stats_show_subscribers_that_hold_views(channel: Channel) -> None:
    with channel.publisher(slots=8) as publisher, channel.subscriber() as subscriber:
        publisher.send_many([b"x"] * 3)
        views = [subscriber.receive_view(0) for _ in range(3)]
        (viewer,) = channel.diagnose().viewers
        assert (viewer.node, viewer.views, viewer.outdated, viewer.oldest_ns) == ("tester", 3, 0, None)
        assert viewer.participant.pid == os.getpid()
        publisher.send_many([b"x"] * 8)
        (viewer,) = channel.diagnose().viewers
        assert views[0] is not None
        assert (viewer.views, viewer.outdated, viewer.oldest_ns) == (3, 3, views[0].publish_time)
        assert subscriber_of_node(channel, "tester").views_held == 3
        for view in views:
            assert view is not None
            view.release()
        (viewer,) = channel.diagnose().viewers
        assert (viewer.views, viewer.outdated) == (0, 0)
    assert channel.diagnose().viewers == ()


def test_channel_stats_distinguish_dead_from_closed_participants(channel: Channel) -> None:
    with Child(publish, channel.name) as child:
        assert child.hear() == "up"
        with Child(hold_views, channel.name) as watcher:
            assert watcher.hear() == 2
            watcher.kill()
        child.kill()
    found = channel.diagnose()
    (row,) = found.publishers
    assert (row.participant.pid, row.participant.alive, row.left, row.messages) == (child.pid, False, False, 5)
    (dead,) = found.subscribers
    assert (dead.participant.pid, dead.participant.alive, dead.lag, dead.received) == (watcher.pid, False, None, 2)
    (viewer,) = found.viewers
    assert (viewer.participant.alive, viewer.node, viewer.views) == (False, "watcher", 2)
    assert {role for role, who in found.participants if who.alive is False} == {"publisher", "subscriber", "viewer"}


def test_channel_stats_show_each_pool_of_publisher(channel: Channel) -> None:
    with channel.publisher(slots=4, slot_bytes=64) as publisher, publisher.loan(10):
        publisher.send(b"x" * 1000)
        small, large = sorted(channel.diagnose().publishers, key=lambda one: one.slot_bytes)
        assert (small.superseded, small.left, small.participant.alive) == (True, False, True)
        assert (large.superseded, large.left, large.sent) == (False, False, 1)


def test_channel_stats_list_pools_without_owner_as_orphans(channel: Channel) -> None:
    path = Path(shm_paths.pool_path(channel.name, "", 0x1234))
    with channel.publisher():
        assert channel.diagnose().orphans == ()
        path.write_bytes(bytes(5000))
        found = channel.diagnose()
        assert found.orphans == (str(path),)
        assert found.pool_bytes == sum(os.stat(one.path).st_size for one in found.publishers) + 5000
    path.unlink()


def test_channel_stats_succeed_with_missing_pool(channel: Channel) -> None:
    with channel.publisher() as publisher:
        publisher.send(b"x")
        os.unlink(channel.diagnose().publishers[0].path)
        (row,) = channel.diagnose().publishers
        assert (row.pool_bytes, row.messages, row.participant.alive) == (None, 1, True)


def test_channel_stats_do_not_change_files(channel: Channel) -> None:
    with channel.publisher() as publisher, channel.subscriber() as subscriber:
        publisher.send(b"x")
        view = subscriber.receive_view(0)
        paths = [Path(channel.diagnose().path), Path(channel.diagnose().publishers[0].path)]
        before = [path.read_bytes() for path in paths]
        msgq.stats.channel(channel.name)
        assert [path.read_bytes() for path in paths] == before
        assert view is not None
        view.release()


def test_channel_stats_show_unregistered_handle_as_opened(endpoint: str) -> None:
    channel = Channel(endpoint)
    assert msgq.stats.channel(endpoint).opened
    subscribers = [channel.subscriber() for _ in range(65)]
    channel.close()
    assert (len(msgq.stats.channel(endpoint).subscribers), msgq.stats.channel(endpoint).opened) == (64, True)
    subscribers[64].close()
    assert not msgq.stats.channel(endpoint).opened, "only those that are listed are left"
    passive = Channel(endpoint, passive=True)
    assert not msgq.stats.channel(endpoint).opened
    passive.close()
    for subscriber in subscribers:
        subscriber.close()
    assert msgq.stats.channel(endpoint).participants == ()


def test_channel_stats_show_parent_handle_as_opened_after_close_in_child(channel: Channel) -> None:
    def look() -> None:
        channel.close()  # the parent's

    assert in_fork(look) == 0
    assert channel.diagnose().opened


def test_channel_stats_show_kind_of_channel(prefix: str) -> None:
    with Node("a") as node:
        node.advertise("plain")
        node.join_broadcast("news")
        node.create_mailbox("tag")
        found = {one.name: one for one in msgq.stats.channels()}
        kinds = {name: one.kind for name, one in found.items()}
        assert kinds == {"a:mbx:tag": "mailbox", "news:broadcast": "broadcast", "plain": "pubsub"}
        assert found["a:mbx:tag"].max_subscribers == 1
        assert [one.name for one in msgq.stats.channels("")] != list(kinds)
        assert prefix in shm_paths.list_prefixes()
        assert {one.prefix for one in found.values()} == {prefix}


def test_list_of_channel_stats_skips_invalid_files(prefix: str) -> None:
    Channel("good").close()
    (SHM / f"msgqchan_{prefix}" / "bad").write_bytes(bytes(100))
    assert [one.name for one in msgq.stats.channels()] == ["good"]
    assert list(msgq.stats.channel_inodes()) == ["bad", "good"]
    with pytest.raises(SegmentError, match="channel not found"):
        msgq.stats.channel("absent")


def random_bytes(path: Path, seed: int) -> None:
    """Change words of a file at random, but not those by which it is known, and not its size."""
    rng = random.Random(seed)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for _ in range(2000):
            place = rng.randrange(64, len(memory) - 8, 8)
            word = rng.choice([0, 1, 2**64 - 1, rng.getrandbits(64), rng.getrandbits(20), 2**63])
            memory[place : place + 8] = word.to_bytes(8, "little")


@pytest.mark.parametrize("seed", range(10))
def test_channel_stats_of_corrupt_file_raise_only_msgq_errors(channel: Channel, seed: int) -> None:
    """Channel file and pool are filled with noise: a look says something, or fails with an error of ours."""
    with channel.publisher() as publisher, channel.subscriber() as subscriber:
        publisher.send_many([b"x"] * 5)
        subscriber.receive(0)
        channel_file, pool = Path(channel.diagnose().path), Path(channel.diagnose().publishers[0].path)
        good = channel_file.read_bytes(), pool.read_bytes()
        for path in (channel_file, pool):
            random_bytes(path, seed)
        try:
            found = channel.diagnose()
            assert isinstance(found, ChannelStats)
            assert repr(dataclasses.asdict(found))
        except MsgqError:
            pass
        for path, before in zip((channel_file, pool), good, strict=True):
            with open(path, "r+b") as file:
                file.write(before)


def test_channel_stats_during_traffic_are_consistent(channel: Channel) -> None:
    """What: one thread publishes into a pool that is smaller than the order, another receives; this one looks.

    Failure would mean: a figure that was never true, as more messages lost than were published.
    """
    over = threading.Event()
    publisher, subscriber = channel.publisher(slots=8), channel.subscriber()

    def send() -> None:
        while not over.is_set():
            publisher.send(b"x")

    def take(subscriber: Subscriber) -> None:
        while not over.is_set():
            subscriber.receive(0)

    tasks = [Task(send), Task(take, subscriber)]
    try:
        for _ in range(300):
            before = channel.messages
            found = channel.diagnose()
            (listed,) = found.subscribers
            assert before <= found.messages <= channel.messages
            assert listed.lag is not None
            assert listed.lag <= 16
            being_published = 1  # a publisher stores the entry of its message before it counts the message
            assert listed.lost + listed.received <= channel.messages + being_published
    finally:
        over.set()
        for task in tasks:
            task.result()
    listed = subscriber_of_node(channel, "tester")
    rest = len(subscriber.receive_many())
    assert (listed.lost, listed.lag) == (subscriber.lost, rest)
    publisher.close()
    subscriber.close()


def test_channel_stats_count_sends_refused_by_full_pool(channel: Channel) -> None:
    with channel.publisher(slots=1) as publisher, channel.subscriber() as subscriber:
        publisher.send(b"x")
        view = subscriber.receive_view(0)
        with pytest.raises(PoolExhaustedError):
            publisher.send(b"y")
        (row,) = channel.diagnose().publishers
        assert (row.refused, row.sent) == (1, 1)
        assert view is not None
        view.release()

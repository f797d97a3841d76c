"""Rules of topics that are easy to miss in the docs, kept by this library and by the implementation from the docs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import msgq
from msgq.kinds.opening import open_source
from tests.independent import ring
from tests.independent.ring import Publisher, Subscriber
from tests.independent.ring_files import BASE_TAG, PUBLISHER_ROWS, SUBSCRIBERS, Topic
from tests.independent.shared_file import SharedFile, write_identity
from tests.stock import StockPublisher
from tests.support import SHM, Child, Task, hear, run_child, say

RING = 4096
CREATORS = pytest.mark.parametrize("subscribe", [msgq.sub_sock, Subscriber], ids=["msgq", "independent"])
PUBLISHERS = pytest.mark.parametrize("publish", [msgq.pub_sock, Publisher], ids=["msgq", "independent"])

Publish = Callable[[str, int], "msgq.PubSocket | Publisher"]
Subscribe = Callable[[str], "msgq.SubSocket | Subscriber"]


def stop_before_wrap(endpoint: str) -> None:
    """Announce the limit of the next cycle, and wait to be killed before the wrap mark (between steps 3.5 and 3.6)."""
    publisher = Publisher(endpoint, RING)
    for _ in range(4):
        publisher.send(bytes(992))  # 1000 bytes of the ring: the fifth message does not fit into the lap
    say("filled")
    hear()
    publisher._extend(publisher._position.next_lap(1000))
    say("extended")
    hear()


@PUBLISHERS
def test_publisher_killed_before_wrap_mark_leaves_canary_to_next_publisher(endpoint: str, publish: Publish) -> None:
    with Child(stop_before_wrap, endpoint) as child:
        assert child.hear() == "filled"
        theirs, ours = Subscriber(endpoint), msgq.sub_sock(endpoint)
        child.say()
        assert child.hear() == "extended"
        child.kill()
    publisher = publish(endpoint, RING)
    sent = [b"%d" % number for number in range(20)]
    for data in sent:  # the first five fit into the lap
        publisher.send(data)
    received = [theirs.receive() for _ in sent]
    assert [message and message.data for message in received] == sent
    assert [ours.receive(timeout=0) for _ in sent] == sent
    assert theirs.topic.ring.load(384 + RING - 8) == theirs.topic.canary
    assert (theirs.lost, ours.lost) == (0, 0)
    for participant in (publisher, theirs, ours):
        participant.close()


@pytest.mark.ci
def test_independent_subscriber_continues_after_stock_publisher_lapped_it(endpoint: str) -> None:
    with StockPublisher(endpoint, RING) as stock:
        theirs = Subscriber(endpoint)
        stock.send(0)
        assert theirs.receive()
        stock.flood(100, first=1)
        assert Task(theirs.receive).result() is None  # it would walk forever from the checkpoint of its joining
        stock.send(101)
        assert theirs.receive()
        assert (theirs.received, theirs.resets, theirs.lost_unknown) == (2, 1, True)
        assert msgq.stats.topic(endpoint).subscribers[0].lost is None
        theirs.close()


@pytest.mark.ci
@CREATORS
def test_subscriber_that_joins_stock_publisher_has_no_base_sequence(endpoint: str, subscribe: Subscribe) -> None:
    with StockPublisher(endpoint, RING) as stock:
        stock.send(0)
        subscriber = subscribe(endpoint)
        topic = Topic(endpoint)
        assert topic.side.load(SUBSCRIBERS + BASE_TAG) == 0
        topic.close()
        subscriber.close()


@CREATORS
def test_messages_before_new_side_segment_are_not_counted(endpoint: str, subscribe: Subscribe) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher:
        for _ in range(5):
            publisher.send(bytes(992))
    (SHM / f"msgqside_{endpoint}").unlink()
    subscriber = subscribe(endpoint)
    source = open_source(endpoint, whole=True)
    assert source.lost is None
    source.close()
    subscriber.close()


def test_independent_subscriber_shows_loss_before_next_message(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher:
        theirs = Subscriber(endpoint)
        for _ in range(9):
            publisher.send(bytes(992))
        assert theirs.receive() is None
        with msgq.pub_sock(endpoint) as after:  # nobody computes losses for a cursor that is intact
            seen = msgq.stats.topic(endpoint).subscribers[0]
            assert (seen.lost, seen.resets, seen.lag_bytes) == (9, 1, 0)
            assert after.all_readers_updated()
        theirs.close()


@PUBLISHERS
def test_publisher_without_free_row_is_refused(endpoint: str, publish: Publish) -> None:
    superseded = [Publisher(endpoint, RING) for _ in range(PUBLISHER_ROWS)]
    with pytest.raises((msgq.MultiplePublishersError, BlockingIOError)):
        publish(endpoint, RING)
    superseded[-1].send(b"the refused publisher took nothing over")
    superseded.pop(0).close()
    publish(endpoint, RING).close()
    for publisher in superseded:
        publisher.close()


def test_independent_publisher_starts_while_previous_one_leaves(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = msgq.pub_sock(endpoint, RING)
    identities: list[int] = []

    def write_identity_late(file: SharedFile, row: int, uid: int) -> None:
        ours.close()  # at the first call
        identities.append(uid)
        write_identity(file, row, uid)

    monkeypatch.setattr(ring, "write_identity", write_identity_late)
    theirs = Publisher(endpoint, RING)
    assert len(identities) == 2  # the first exchange failed
    theirs.send(b"1")
    assert msgq.stats.topic(endpoint).messages == 1
    theirs.close()


def use_with_name(name: str, endpoint: str) -> list[str]:
    """Return the names that two subscribers show, in a process of this name."""
    Path("/proc/self/comm").write_text(name)
    theirs = Subscriber(endpoint)
    with msgq.sub_sock(endpoint):
        names = [row.participant.name for row in msgq.stats.topic(endpoint).subscribers]
    theirs.close()
    return names


@pytest.mark.parametrize("name", ["short", "fifteen-letters"])
def test_participants_of_one_process_show_same_name(endpoint: str, name: str) -> None:
    assert run_child(use_with_name, name, endpoint) == [name, name]


def create_with_umask(subscriber: str, endpoint: str) -> list[int]:
    """Create a topic with a narrow umask. Return the modes of its files."""
    os.umask(0o277)
    (msgq.sub_sock if subscriber == "msgq" else Subscriber)(endpoint).close()
    return [os.stat(SHM / f"{start}_{endpoint}").st_mode & 0o777 for start in ("msgq", "msgqside")]


@pytest.mark.parametrize("creator", ["msgq", "independent"])
def test_new_topic_files_have_mode_600_with_any_umask(endpoint: str, creator: str) -> None:
    assert run_child(create_with_umask, creator, endpoint) == [0o600, 0o600]

"""Nodes: channels under a name, broadcasts, mailboxes."""

from __future__ import annotations

import pytest

from msgq.channel import Node
from msgq.errors import ChannelMismatchError, EndpointClosedError, EndpointNameError, TooManySubscribersError
from tests.contract.conftest import Channels


def test_node_subscriber_receives_from_node_publisher(channels: Channels) -> None:
    driver, mapper = channels.node("driver"), channels.node("mapper")
    name = channels.token
    pub = driver.advertise(name, capacity=16, slots=3)
    sub = mapper.subscribe(name, history=1, max_views=2)
    pub.send(b"scan")
    assert sub.receive(0) == b"scan"
    assert sub.last.publisher.name == driver.name
    assert (pub.slots, sub.max_views, channels.open().capacity) == (3, 2, 16)


def test_several_nodes_may_publish_on_one_channel(channels: Channels) -> None:
    pubs = [channels.node(f"node{number}").advertise(channels.token) for number in range(3)]
    sub = channels.node("reader").subscribe(channels.token)
    names = []
    for pub in pubs:
        pub.send(b"")
        sub.receive(0)
        names.append(sub.last.publisher.name)
    assert names == [channels.token + f"node{number}" for number in range(3)]


def test_broadcast_delivers_to_all_other_nodes(channels: Channels) -> None:
    sides = [channels.node(f"node{number}").join_broadcast(channels.token) for number in range(3)]
    for number, side in enumerate(sides):
        side.publisher.send(b"%d" % number)
    assert [side.subscriber.receive_many() for side in sides] == [[b"1", b"2"], [b"0", b"2"], [b"0", b"1"]]
    for side in sides:
        side.close()
    assert sides[0].publisher.closed
    assert sides[0].subscriber.closed


def test_broadcast_with_own_true_receives_messages_of_its_node(channels: Channels) -> None:
    side = channels.node("node").join_broadcast(channels.token, own=True, capacity=16)
    side.publisher.send(b"message")
    assert side.subscriber.receive(0) == b"message"


def test_broadcast_and_channel_of_same_name_are_separate(channels: Channels) -> None:
    sub = channels.node("one").subscribe(channels.token)
    channels.node("other").join_broadcast(channels.token).publisher.send(b"message")
    assert sub.receive(0) is None


def test_second_owner_of_mailbox_is_refused(channels: Channels) -> None:
    owner, sender, other = channels.node("owner"), channels.node("sender"), channels.node("other")
    box = owner.create_mailbox("orders")
    sender.open_mailbox(owner.name, "orders").send(b"1")
    other.open_mailbox(owner.name, "orders").send(b"2")
    assert box.receive_many() == [b"1", b"2"]
    with pytest.raises(TooManySubscribersError):
        owner.create_mailbox("orders")
    box.close()
    owner.create_mailbox("orders")


def test_mailbox_may_be_opened_before_its_owner(channels: Channels) -> None:
    owner, sender = channels.node("owner"), channels.node("sender")
    sender.open_mailbox(owner.name, "orders", capacity=16).send(b"early")
    box = owner.create_mailbox("orders", history=10)
    assert box.receive(0) == b"early"
    with pytest.raises(ChannelMismatchError):
        sender.open_mailbox(owner.name, "orders", capacity=32)


def test_mailboxes_of_different_tags_are_separate(channels: Channels) -> None:
    owner = channels.node("owner")
    boxes = [owner.create_mailbox(tag) for tag in ("a", "b")]
    channels.node("sender").open_mailbox(owner.name, "b").send(b"message")
    assert [box.receive(0) for box in boxes] == [None, b"message"]


def test_channel_diagnose_names_pubsub_broadcast_and_mailbox(channels: Channels) -> None:
    from msgq.channel.channel import ReservedChannel

    node = channels.node("node")
    node.subscribe(channels.token)
    node.join_broadcast(channels.token)
    node.create_mailbox("tag")
    names = (channels.token, f"{channels.token}:broadcast", f"{node.name}:mbx:tag")
    kinds = [ReservedChannel(name, create=False).diagnose().kind for name in names]
    assert kinds == ["pubsub", "broadcast", "mailbox"]


def test_node_close_closes_its_channels(channels: Channels) -> None:
    with channels.node("node") as node:
        pub, sub = node.advertise(channels.token), node.subscribe(channels.token)
    assert pub.closed
    with pytest.raises(EndpointClosedError):
        sub.receive(0)


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "x" * 48])
def test_node_with_invalid_name_is_refused(channels: Channels, name: str) -> None:
    with pytest.raises(EndpointNameError):
        Node(name).advertise(channels.token)


@pytest.mark.parametrize("name", ["", "a:b", "a/b"])
def test_invalid_broadcast_and_mailbox_names_are_refused(channels: Channels, name: str) -> None:
    node = channels.node("node")
    for call in (node.join_broadcast, node.create_mailbox, lambda tag: node.open_mailbox(node.name, tag)):
        with pytest.raises(EndpointNameError):
            call(name)


def test_nodes_of_different_prefixes_are_separate(channels: Channels, prefix: str) -> None:
    here, there = channels.node("here"), channels.node("there", prefix="")
    sub = there.subscribe(channels.token)
    here.advertise(channels.token).send(b"message")
    assert sub.receive(0) is None
    again = channels.node("again", prefix=prefix).subscribe(channels.token, history=1)
    assert again.receive(0) == b"message"

"""Stock publishers and ours that follow each other, take over, and die in a send."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

import msgq
from msgq.errors import MultiplePublishersError
from tests.stock import (
    DATA_SIZE,
    EXIT_AT_POINT,
    Header,
    PeerDiedError,
    PeerError,
    StockPublisher,
    StockSubscriber,
    message,
    sequence_of,
)
from tests.stock.ours import (
    KINDS,
    SMALL_RING,
    OurPublisher,
    Receiving,
    publisher,
    sequences,
    subscriber,
    wait_joined,
)

pytest_plugins = ("tests.stock.fixtures",)


@KINDS
def test_stock_and_msgq_subscribers_receive_the_same_messages(endpoint: str, stack: Any, kind: Any) -> None:
    early = stack.enter_context(subscriber(endpoint))
    pub = stack.enter_context(publisher(kind, endpoint, DATA_SIZE))
    ours = [early, *(stack.enter_context(subscriber(endpoint, passive=passive)) for passive in (False, True))]
    newest = stack.enter_context(subscriber(endpoint, conflate=True))
    stock = [stack.enter_context(StockSubscriber(endpoint)) for _ in range(2)]
    for first in range(0, 2000, 100):
        pub.flood(100, 12, 1000, first=first, seed=first)
        for sub in ours:
            assert sequences(sub) == list(range(first, first + 100))
        for peer in stock:
            tally = peer.drain()
            assert (tally.count, tally.harm, tally.first) == (100, (0, 0, 0), first)
        assert sequence_of(newest.receive()) == first + 99


def test_stock_and_msgq_publishers_take_over_in_turn(endpoint: str, stack: Any) -> None:
    """Ours lose nothing; a stock reader comes back at its next call after a stock start, and at once after ours."""
    ours = stack.enter_context(subscriber(endpoint))
    passive: msgq.SubSocket | None = None
    stock = stack.enter_context(StockSubscriber(endpoint))
    first = 0
    for kind in ["stock", "ours", "stock", "ours", "ours", "stock", "stock"]:
        pub = stack.enter_context(publisher(kind, endpoint))
        passive = passive or stack.enter_context(subscriber(endpoint, passive=True))
        if kind == "stock":
            assert stock.receive().size == 0
        pub.flood(20, first=first)
        expected = list(range(first, first + 20))
        assert sequences(ours) == expected, kind
        assert sequences(passive) == expected, kind
        tally = stock.drain()
        assert (tally.count, tally.harm, tally.first) == (20, (0, 0, 0), first)
        first += 20


@pytest.mark.parametrize("kinds", [("stock", "ours"), ("ours", "stock"), ("stock", "stock")])
def test_unread_messages_stay_after_a_change_of_publisher(endpoint: str, stack: Any, kinds: Any) -> None:
    subs = [stack.enter_context(subscriber(endpoint))]
    for first, kind in zip((0, 50), kinds, strict=True):
        pub = stack.enter_context(publisher(kind, endpoint))
        if first == 0:
            subs.append(stack.enter_context(subscriber(endpoint, passive=True)))
        pub.flood(50, 12, 500, first=first)
    for sub in subs:
        assert sequences(sub) == list(range(100))
        assert sub.lost in (0, None)


@pytest.mark.parametrize("receive", ["receive", "receive_many", "receive_array", "receive_into", "poll"])
def test_passive_subscriber_counts_losses_after_msgq_publisher_replaces_stock(
    endpoint: str, stack: Any, receive: Any
) -> None:
    """It finds the side segment that came later, and so knows what it loses."""
    stock = stack.enter_context(publisher("stock", endpoint, SMALL_RING))
    passive = stack.enter_context(subscriber(endpoint, passive=True))
    stock.flood(3)
    assert sequences(passive) == [0, 1, 2]
    ours = stack.enter_context(publisher("ours", endpoint, SMALL_RING))
    poller = msgq.Poller()
    poller.registerSocket(passive)
    look: dict[str, Callable[[], object]] = {
        "receive": lambda: passive.receive(True),
        "receive_many": lambda: passive.receive_many(),
        "receive_array": lambda: passive.receive_array("V8"),
        "receive_into": lambda: passive.receive_into(bytearray(8), True),
        "poll": lambda: poller.poll(0),
    }
    look[receive]()
    ours.flood(5000, 12, 20, first=3)
    received = len(sequences(passive))
    assert passive.lost == 5000 - received > 0


@pytest.mark.parametrize("ending", ["close", "kill"])
def test_sleeping_subscriber_is_woken_after_each_change_of_publisher(endpoint: str, stack: Any, ending: Any) -> None:
    thread = Receiving(stack.enter_context(subscriber(endpoint)), rounds=12)
    for sequence, kind in enumerate(["ours", "stock"] * 6):
        pub = stack.enter_context(publisher(kind, endpoint))
        if kind == "stock":
            wait_joined(pub)
        thread.wait_asleep()
        pub.send(sequence)
        assert thread.wait_for(sequence + 1)[-1] == sequence
        if ending == "close" and kind == "ours":
            pub.socket.close()
        elif ending == "kill" and kind == "stock":
            pub.kill()


def test_msgq_publisher_takes_over_and_stock_publisher_gets_an_error(endpoint: str, stack: Any) -> None:
    stock = stack.enter_context(StockPublisher(endpoint))
    stock.send(0)
    ours = stack.enter_context(OurPublisher(endpoint))
    with pytest.raises(PeerError) as caught:
        stock.send(1)
    assert caught.value.errno == errno.EADDRINUSE
    sub = stack.enter_context(subscriber(endpoint))
    ours.send(2)
    assert sequences(sub) == [2]


@pytest.mark.parametrize("route", ["send", "send_many", "reserve"])
def test_stock_publisher_takes_over_and_msgq_send_raises(endpoint: str, stack: Any, route: Any) -> None:
    ours = stack.enter_context(OurPublisher(endpoint))
    ours.send(0)
    stack.enter_context(StockPublisher(endpoint))
    before = Header.read(endpoint)

    def reserve() -> None:
        with ours.socket.reserve(64):
            pass

    send = {"send": lambda: ours.send(1), "send_many": lambda: ours.socket.send_many([message(1)]), "reserve": reserve}
    for _ in range(2):
        with pytest.raises(MultiplePublishersError) as caught:
            send[route]()
        assert caught.value.errno == errno.EADDRINUSE
        assert caught.value.endpoint == endpoint
        assert endpoint in str(caught.value)
    assert Header.read(endpoint) == before


def test_stock_publisher_takes_over_during_a_msgq_send(endpoint: str, stack: Any) -> None:
    """Our reservation publishes nothing, and what the stock publisher wrote over it arrives whole."""
    ours = stack.enter_context(OurPublisher(endpoint))
    sub = stack.enter_context(subscriber(endpoint))
    stock: list[StockPublisher] = []

    def send_while_overtaken() -> None:
        with ours.socket.reserve(500) as view:
            view[:] = message(0, 500)
            stock.append(stack.enter_context(StockPublisher(endpoint)))
            stock[0].send(1, 300)

    with pytest.raises(MultiplePublishersError):
        send_while_overtaken()
    stock[0].send(2, 300)
    assert sequences(sub) == [1, 2]


def test_superseded_stock_publisher_that_sends_does_not_harm_readers(endpoint: str, stack: Any) -> None:
    """It checks its uid only when a send begins. Its stale bytes may cost messages, never a crash or a deaf reader."""
    sub = stack.enter_context(subscriber(endpoint))
    stale = stack.enter_context(StockPublisher(endpoint))
    assert sequences(sub) == []
    stale.arm_point("mid_send", "stop", 40)
    stale.begin("send", 0, 200)
    stale.wait_stopped()
    ours = stack.enter_context(OurPublisher(endpoint))
    ours.flood(50, 12, 300, first=100)
    assert sequences(sub) == list(range(100, 150))
    stale.resume()
    stale.reply()
    ours.flood(50, 12, 300, first=200)
    assert sequences(sub)[-1] == 249
    ours.flood(50, 12, 300, first=300)
    assert sequences(sub) == list(range(300, 350))


@pytest.mark.parametrize("point", ["uid_checked", "wrapped", "mid_send", "payload_written", "published"])
@pytest.mark.parametrize("successor", ["stock", "ours"])
def test_stock_publisher_killed_during_a_send_leaves_a_usable_topic(
    endpoint: str, stack: Any, point: Any, successor: Any
) -> None:
    """Readers see the message whole or not at all, and the next publisher goes on from there."""
    ours = stack.enter_context(subscriber(endpoint, segment_size=SMALL_RING))
    pub = stack.enter_context(StockPublisher(endpoint, SMALL_RING))
    assert sequences(ours) == []
    stock = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    for first in (0, 4):  # 8000 bytes each: the ninth wraps
        pub.flood(4, 7992, 7992, first=first)
        assert sequences(ours) == list(range(first, first + 4))
    assert stock.drain().count == 8
    pub.arm_point(point, "exit", 3000)
    with pytest.raises(PeerDiedError) as caught:
        pub.send(8, 7992)
    assert caught.value.code == EXIT_AT_POINT
    assert sequences(ours) == ([8] if point == "published" else [])
    successor_pub = stack.enter_context(publisher(successor, endpoint, SMALL_RING))
    assert stock.drain().count == (point == "published" and successor == "ours")
    successor_pub.flood(20, 12, 2000, first=9)
    assert sequences(ours) == list(range(9, 29))
    tally = stock.drain()
    assert (tally.count, tally.harm, tally.first) == (20, (0, 0, 0), 9)

"""Stock processes and ours on one segment: who is lapped, what is lost, and floods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stock import DATA_SIZE, StockPublisher, StockSubscriber, Tally, message, sequence_of
from tests.stock.ours import KINDS, LAP, SMALL_RING, OurPublisher, collect, publisher, sequences, subscriber

pytest_plugins = ("tests.stock.fixtures",)


def test_lapped_stock_reader_detects_its_cleared_flag_and_resets(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    pub.send(0)
    assert sub.receive().sequence == 0
    pub.flood(LAP // 1000, 1000, 1000, first=1)
    assert sub.header().read_valids[0] == 0
    assert sub.receive().size == 0
    assert sub.resets() == 2
    pub.send(500)
    got = sub.receive()
    assert (got.sequence, got.good) == (500, True)


@pytest.mark.parametrize("point", ["size_trusted", "copied"])
def test_stock_reader_lapped_during_copy_discards_the_copy(endpoint: str, stack: Any, point: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    pub.send(0, 5000)
    sub.arm_point(point, "stop")
    sub.begin_receive()
    sub.wait_stopped()
    pub.flood(LAP // 1000, 900, 1000, first=1)
    sub.resume()
    assert sub.end_receive().size == 0
    assert sub.resets() == 2


def test_reader_flag_is_cleared_before_first_byte_is_overwritten(endpoint: str, stack: Any) -> None:
    """A reservation that covers the reader's next message has cleared its flag before the caller writes into it."""
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    pub.flood(8, 7992, 7992)  # 8000 bytes each: the ninth begins the next cycle, over the first
    assert sub.header().read_pointers[0] == 0
    with pub.socket.reserve(7992):
        assert sub.header().read_valids[0] == 0


def test_stock_reader_at_the_wrap_mark_is_marked_as_lapped(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    per_lap = 8
    pub.flood(per_lap, 7992, 7992)
    assert sub.drain().count == per_lap
    assert sub.header().read_pointers[0] == per_lap * 8000  # position of the wrap mark, in this lap and in the next
    pub.flood(per_lap + 1, 7992, 7992, first=per_lap)
    header = sub.header()
    assert header.write_pointer >> 32 == 2
    assert header.read_valids[0] == 0


@pytest.mark.parametrize("passive", [False, True])
def test_lost_is_unknown_after_a_stock_publisher_lapped_the_subscriber(endpoint: str, stack: Any, passive: Any) -> None:
    pub = stack.enter_context(StockPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(subscriber(endpoint, passive=passive))
    pub.send(0)
    assert sequences(sub) == [0]
    pub.flood(LAP // 1000, 1000, 1000, first=1)
    tally = Tally().add(sub.receive_many())
    pub.send(500)
    tally = collect(sub, 500, tally)
    assert tally.harm == (0, 0, 0)
    assert sub.lost is None


@KINDS
def test_subscriber_exactly_one_lap_behind_does_not_see_empty_ring(endpoint: str, stack: Any, kind: Any) -> None:
    """The offsets agree then, and only they. A stock reader sees no more, so our publisher has cleared its flag."""
    ours = stack.enter_context(subscriber(endpoint, segment_size=SMALL_RING))
    pub = stack.enter_context(publisher(kind, endpoint, SMALL_RING))
    assert sequences(ours) == []
    stock = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    pub.send(0, 7992)  # 8000 bytes in the ring, eight times a lap
    assert (sequences(ours), stock.receive().sequence) == ([0], 0)
    pub.flood(8, 7992, 7992, first=1)
    assert stock.header().write_pointer == (1 << 32) + 8000
    assert stock.header().read_valids[stock.slot()] == (kind == "stock")
    assert sequences(ours) == ([] if kind == "stock" else list(range(1, 9)))
    assert ours.lost == (None if kind == "stock" else 0)


@pytest.mark.parametrize("passive", [False, True])
def test_message_is_not_delivered_while_stock_publisher_overwrites_it(endpoint: str, stack: Any, passive: Any) -> None:
    """It announces nothing: what it may reach with the largest message counts as overwritten."""
    pub = stack.enter_context(StockPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(subscriber(endpoint, passive=passive))
    pub.flood(8, 7992, 7992)
    pub.arm_point("mid_send", "stop", 4000)
    pub.begin("send", 8, 7992)  # wraps, and covers half of message 0
    pub.wait_stopped()
    assert None not in sequences(sub)
    pub.resume()
    pub.reply()
    pub.send(9)
    assert sequences(sub)[-1] == 9


def test_message_is_not_delivered_while_msgq_publisher_overwrites_it(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    subs = [stack.enter_context(subscriber(endpoint, passive=passive)) for passive in (False, True)]
    pub.flood(8, 7992, 7992)
    with pub.socket.reserve(7992) as view:
        view[:4000] = message(8, 7992)[:4000]
        for sub in subs:
            assert None not in sequences(sub)
        view[4000:] = message(8, 7992)[4000:]
    assert [sequences(sub)[-1] for sub in subs] == [8, 8]


def test_lost_is_exact_with_msgq_publisher(endpoint: str, stack: Any) -> None:
    """Also with stock readers on the ring."""
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    sub = stack.enter_context(subscriber(endpoint))
    got = sent = 0
    for count in (10, 300, 20, 1000, 5):
        pub.flood(count, 12, 2000, first=sent, seed=count)
        sent += count
        got += len(sub.receive_many())
        assert sub.lost == sent - got
    assert sub.lost > 0


@pytest.mark.parametrize(("count", "largest", "data_size"), [(400_000, 40, DATA_SIZE), (100_000, 5000, 4 * SMALL_RING)])
def test_fast_stock_publisher_delivers_no_torn_message_to_slow_readers(
    endpoint: str, stack: Any, count: Any, largest: Any, data_size: Any
) -> None:
    """What: a stock publisher at full speed, and readers of ours, with and without a slot, that cannot keep up.

    Why: a stock publisher announces nothing; only the position says whether a copy is whole.
    Failure would mean: a torn, repeated or reordered message was delivered as good.
    """
    pub = stack.enter_context(StockPublisher(endpoint, data_size))
    tallies = {stack.enter_context(subscriber(endpoint, passive=passive)): Tally() for passive in (False, True)}
    published = 0
    while published < count or not all(tally.count >= 2000 and tally.lost for tally in tallies.values()):
        pub.begin_flood(count // 10, 12, largest, first=published, seed=published)
        published += count // 10
        while not pub.answered():
            for sub, tally in tallies.items():
                tally.add(sub.receive_many(200))
        pub.reply()
        assert published < 50 * count, f"the readers get next to nothing: {tallies}"
    end = published
    for sub, tally in tallies.items():
        while tally.add(sub.receive_many()).last < end:  # it may be lapped by the last one too
            pub.send(published)
            published += 1
        assert tally.harm == (0, 0, 0)


@pytest.mark.parametrize(("count", "largest", "data_size"), [(200_000, 40, DATA_SIZE), (40_000, 5000, 4 * SMALL_RING)])
def test_fast_msgq_publisher_delivers_no_torn_message_to_slow_stock_readers(
    endpoint: str, stack: Any, count: Any, largest: Any, data_size: Any
) -> None:
    """What: our publisher at full speed, one stock reader that is slow and one that does its best.

    Why: stock readers trust the flag, so it must be cleared before the first byte of theirs is overwritten.
    Failure would mean: they abort, or deliver a torn, repeated or reordered message.
    """
    pub = stack.enter_context(OurPublisher(endpoint, data_size))
    readers = [stack.enter_context(StockSubscriber(endpoint, data_size)) for _ in range(2)]
    for reader, spin in zip(readers, (20_000, 0), strict=True):
        reader.begin_collect(count, spin=spin)
    pub.flood(count, 12, largest)
    for reader in readers:
        tally = reader.end_collect(repeat_last=lambda: pub.send(count))
        assert tally.harm == (0, 0, 0), tally
        assert tally.count + tally.lost == count + 1 - tally.first


@pytest.mark.parametrize("size", [16, 100, 1000])
def test_late_subscriber_receives_the_last_message_of_a_stock_publisher(endpoint: str, stack: Any, size: int) -> None:
    """The ring has 4096 bytes, so that laps begin and end between the messages."""
    pub = stack.enter_context(StockPublisher(endpoint, 4096))
    for number in range(1, 120):
        pub.send(number, size)
        with subscriber(endpoint, latest=True) as sub:
            data = sub.receive(timeout=0)
            assert data is not None
            assert (sequence_of(data), len(data)) == (number, size)
            assert sub.receive(timeout=0) is None

"""Reader slots that stock processes and ours share: taken, taken over, evicted, and left by the dead."""

from __future__ import annotations

import mmap
import signal
import struct
from typing import Any

import pytest

from tests.stock import (
    EXIT_AT_POINT,
    SLOTS,
    Header,
    StockPublisher,
    StockSubscriber,
    segment_path,
    sequence_of,
)
from tests.stock.ours import (
    KINDS,
    SMALL_RING,
    OurPublisher,
    Receiving,
    new_slots,
    publisher,
    sequences,
    subscriber,
)

pytest_plugins = ("tests.stock.fixtures",)


@KINDS
def test_sixteenth_reader_uses_no_slot_and_evicts_no_reader(endpoint: str, stack: Any, kind: Any) -> None:
    pub = stack.enter_context(publisher(kind, endpoint))
    stock = [stack.enter_context(StockSubscriber(endpoint)) for _ in range(SLOTS)]
    before = Header.read(endpoint)
    assert before.num_readers == SLOTS
    ours = [stack.enter_context(subscriber(endpoint)) for _ in range(2)]
    pub.flood(50, 12, 400)
    for sub in ours:
        assert sequences(sub) == list(range(50))
    for sub in stock:
        tally = sub.drain()
        assert (tally.count, tally.harm) == (50, (0, 0, 0))
    after = Header.read(endpoint)
    assert (after.num_readers, after.read_uids) == (SLOTS, before.read_uids)


def test_sleeping_subscriber_without_slot_is_woken_by_stock_publisher(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(StockPublisher(endpoint))
    for _ in range(SLOTS):
        stack.enter_context(StockSubscriber(endpoint))
    thread = Receiving(stack.enter_context(subscriber(endpoint)), rounds=5)
    for sequence in range(5):
        thread.wait_asleep()
        pub.send(sequence)
        assert thread.wait_for(sequence + 1)[-1] == sequence


@KINDS
@pytest.mark.parametrize("died", ["killed", "while joining"])
def test_msgq_reader_takes_the_slot_of_a_dead_stock_reader(endpoint: str, stack: Any, kind: Any, died: Any) -> None:
    pub = stack.enter_context(publisher(kind, endpoint))
    arm = ("slot_taken", "exit", 0) if died == "while joining" else None
    for _ in range(SLOTS):
        dead = stack.enter_context(StockSubscriber(endpoint, arm=arm))
        assert (dead.wait() == EXIT_AT_POINT) if arm else (dead.kill() == -signal.SIGKILL)
    before = Header.read(endpoint)
    assert before.num_readers == SLOTS
    sub = stack.enter_context(subscriber(endpoint))
    pub.send(0)
    assert sequences(sub) == [0]
    after = Header.read(endpoint)
    (slot,) = new_slots(before, after)
    assert slot < after.num_readers
    if kind == "stock":  # ours does not need the slot
        assert (after.read_pointers[slot], after.read_valids[slot]) == (after.write_pointer, 1)
    sub.close()
    assert Header.read(endpoint).read_uids[slot] == 0


def test_stock_readers_join_while_msgq_readers_are_connected(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint))
    with subscriber(endpoint):
        beside = stack.enter_context(StockSubscriber(endpoint))
    after = stack.enter_context(StockSubscriber(endpoint))
    assert beside.slot() != after.slot()
    ours = stack.enter_context(subscriber(endpoint))
    for sub in (beside, after):
        sub.begin_receive(10_000)
        sub.wait_asleep()
    pub.send(0)
    assert [sub.end_receive().how for sub in (beside, after)] == ["signal"] * 2
    assert sequences(ours) == [0]


@KINDS
def test_evicted_msgq_reader_leaves_its_slot_to_stock_readers(endpoint: str, stack: Any, kind: Any) -> None:
    """The sixteenth reader is a stock one and clears all slots, ours among them: we lose nothing and stay away."""
    pub = stack.enter_context(publisher(kind, endpoint))
    ours = stack.enter_context(subscriber(endpoint))
    pub.send(0)
    stock = [stack.enter_context(StockSubscriber(endpoint)) for _ in range(SLOTS)]
    assert Header.read(endpoint).num_readers == 1
    for peer in stock:
        assert peer.receive().size == 0  # and joins again
    before = Header.read(endpoint)
    assert before.num_readers == SLOTS
    pub.send(1)
    assert sequences(ours) == [0, 1]
    thread = Receiving(ours)
    thread.wait_asleep()
    pub.send(2)
    assert thread.wait_for(1) == [2]
    assert [peer.drain().count for peer in stock] == [2] * SLOTS
    after = Header.read(endpoint)
    assert (after.num_readers, after.read_uids) == (SLOTS, before.read_uids)


def test_subscriber_with_slot_beyond_num_readers_joins_again(endpoint: str, stack: Any) -> None:
    """A stock publisher that starts between our claim of a slot and our uid leaves a uid beyond num_readers."""
    pub = stack.enter_context(StockPublisher(endpoint))
    sub = stack.enter_context(subscriber(endpoint, timeout_ms=1))
    with segment_path(endpoint).open("r+b") as file, mmap.mmap(file.fileno(), 384) as words:
        words[0:8] = struct.pack("<Q", 0)
    assert sub.receive() is None
    assert pub.header().num_readers > 0
    pub.send(0)
    assert not pub.all_readers_updated()
    assert sequence_of(sub.receive()) == 0
    assert pub.all_readers_updated()


def test_starting_msgq_publisher_keeps_a_joining_stock_reader(endpoint: str, stack: Any) -> None:
    stack.enter_context(OurPublisher(endpoint)).socket.close()
    sub = stack.enter_context(StockSubscriber(endpoint, arm=("slot_taken", "stop", 0)))
    sub.wait_stopped()
    pub = stack.enter_context(OurPublisher(endpoint))
    sub.resume()
    sub.reply()
    assert sub.slot() < sub.header().num_readers
    sub.begin_receive(10_000)
    sub.wait_asleep()
    pub.send(0)
    assert sub.end_receive().how == "signal"


@pytest.mark.parametrize("point", ["slot_taken", "reset_loaded", "size_trusted", "copied"])
def test_stock_reader_killed_at_each_step_disturbs_no_other_process(endpoint: str, stack: Any, point: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    ours = stack.enter_context(subscriber(endpoint))
    stock = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    for first in range(0, 200, 10):
        early = point in ("slot_taken", "reset_loaded")
        dying = stack.enter_context(StockSubscriber(endpoint, SMALL_RING, arm=(point, "exit", 0) if early else None))
        if not early:
            dying.arm_point(point, "exit")
        pub.flood(10, 12, 3000, first=first)
        dying.begin_receive()
        assert dying.wait() == EXIT_AT_POINT
        assert sequences(ours) == list(range(first, first + 10))
        assert stock.drain().harm == (0, 0, 0)

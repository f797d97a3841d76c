"""Stock processes that open a topic with another segment size: the file is cut or grows under everybody.

What must hold: nobody crashes, hangs, or receives what was not sent; who is cut gets `SegmentSizeError` with both sizes
and may connect again; who is outgrown goes on. SIGBUS that is not ours does what it did.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import SegmentSizeError
from tests.contract import size_children as children
from tests.stock import StockPublisher, StockSubscriber, message, number_in, segment_path, sequence_of
from tests.stock.ours import LAP, SMALL_RING, subscriber
from tests.support import Child, Task, wait_asleep, wait_until

pytest_plugins = ("tests.stock.fixtures",)

LARGE, SMALL = 1 << 20, 250_000 // 8 * 8
SIZE = children.SIZE


def truncate_ring(endpoint: str, stack: ExitStack, size: int = SMALL) -> StockSubscriber:
    return stack.enter_context(StockSubscriber(endpoint, size))


def send_until_cut(pub: msgq.PubSocket, most: int) -> None:
    """Send messages, of which one must raise."""
    with pytest.raises(SegmentSizeError):
        pub.send_many(message(i, SIZE) for i in range(most))


def assert_names_both(text: str, now: int = SMALL) -> None:
    assert f"segment_size {LARGE}" in text
    assert f"set to {now}" in text
    assert "connect again" in text


@pytest.mark.parametrize("how", ["send", "large", "send_many", "reserve"])
def test_publisher_gets_an_error_after_the_ring_shrinks(endpoint: str, stack: Any, how: Any) -> None:
    with Child(children.publish, endpoint, LARGE, how) as child:
        assert child.hear() == "sending"
        stock = truncate_ring(endpoint, stack)
        texts = child.hear()
        for text in texts:
            assert_names_both(text)
        child.say()
        assert child.hear() == "sent"
        stock.drain()
        with subscriber(endpoint, timeout_ms=0) as sub:
            with msgq.pub_sock(endpoint) as pub:
                pub.send(message(9, SIZE))
            assert number_in(sub.receive()) == 9
        assert stock.drain().torn == 0
        child.say()
        child.result()


def test_publisher_gets_an_error_after_truncation_to_zero_bytes(endpoint: str) -> None:
    with Child(children.publish, endpoint, LARGE, "send") as child:
        assert child.hear() == "sending"
        os.truncate(segment_path(endpoint), 0)
        assert_names_both(child.hear()[0], 0)
        child.say()
        assert child.hear() == "sent"
        child.say()
        child.result()


@pytest.mark.parametrize("how", ["receive", "poll", "fd", "into", "many", "array", "async", "conflate", "passive"])
@pytest.mark.parametrize("traffic", [True, False])
def test_subscriber_gets_an_error_after_the_ring_shrinks(endpoint: str, stack: Any, how: Any, traffic: Any) -> None:
    """With traffic it may have any message in hand; without, it sleeps, and is woken for the error."""
    with Child(children.subscribe, endpoint, LARGE, how) as child:
        assert child.hear() == "joined"
        if traffic:
            pub = stack.enter_context(msgq.pub_sock(endpoint))
            for i in range(LARGE // SIZE):
                pub.send(message(i, SIZE))
                time.sleep(0.0001)
        elif how != "passive":
            wait_asleep(child.pid)
        stock = truncate_ring(endpoint, stack)
        if traffic:
            send_until_cut(pub, 3 * LARGE // SIZE)
            pub.close()
        for text in child.hear():
            assert_names_both(text)
        again = stack.enter_context(msgq.pub_sock(endpoint))
        child.say()
        assert child.hear() == "again"
        again.send(message(5, SIZE))
        assert child.result() == [5]
        assert stock.drain().torn == 0


def test_truncated_and_enlarged_ring_has_no_messages(endpoint: str) -> None:
    """No access faults here: the file has its old size again, but zeros where messages were."""
    with (
        msgq.pub_sock(endpoint, LARGE) as pub,
        msgq.sub_sock(endpoint) as sub,
        subscriber(endpoint, passive=True) as other,
    ):
        pub.send_many([message(i, SIZE) for i in range(600)])
        assert number_in(sub.receive()) == 0
        for size in (384 + SMALL, 384 + LARGE):
            os.truncate(segment_path(endpoint), size)
        for reader in (sub, other):
            with pytest.raises(SegmentSizeError, match=f"set to {LARGE} again"):
                reader.receive_many()
        send_until_cut(pub, 100)
        for socket in (pub, sub):
            socket.close()
        with msgq.sub_sock(endpoint) as sub2, msgq.pub_sock(endpoint) as pub2:
            pub2.send_many([message(i, SIZE) for i in range(2000)])
            got = sub2.receive_many()
            assert None not in map(sequence_of, got)
            assert sub2.lost is not None
            assert len(got) + sub2.lost == 2000


def test_message_cut_by_truncation_of_the_ring_is_not_delivered(endpoint: str) -> None:
    """The rest of the last page becomes zeros without any fault."""
    with msgq.pub_sock(endpoint, LARGE) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send_many([message(i, SIZE) for i in range(600)])
        os.truncate(segment_path(endpoint), 384 + 50 * (SIZE + 8) + 500)
        got: list[bytes] = []
        with pytest.raises(SegmentSizeError):
            got.extend(iter(lambda: sub.receive(True), None))
        assert None not in map(sequence_of, got)


@pytest.mark.parametrize("passive", [False, True])
@pytest.mark.parametrize("call", ["receive", "receive_many", "conflate"])
def test_subscriber_continues_after_stock_publisher_enlarges_the_ring(
    endpoint: str, stack: Any, call: Any, passive: Any
) -> None:
    with msgq.pub_sock(endpoint, SMALL_RING):
        sub = stack.enter_context(subscriber(endpoint, passive=passive, conflate=call == "conflate"))
    pub = stack.enter_context(StockPublisher(endpoint, 8 * SMALL_RING))
    last = -1
    for i in range(3000):  # many laps of the old ring, five of the new one
        pub.send(i, SIZE)
        if i % 7 and call != "receive":
            continue
        got = sub.receive_many() if call == "receive_many" else [sub.receive()]
        numbers = [number_in(one) for one in got]
        assert numbers[0] > last
        last = numbers[-1]
    assert last > 2900
    assert sub.lost is None or sub.lost + sub.stats().received <= 3000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
def test_subscriber_continues_in_a_larger_ring_of_a_trusted_user(endpoint: str, stack: Any) -> None:
    with msgq.pub_sock(endpoint, SMALL_RING):
        os.chown(segment_path(endpoint), 65001, -1)
    sub = stack.enter_context(subscriber(endpoint, passive=True, trust="65001"))
    pub = stack.enter_context(StockPublisher(endpoint, 8 * SMALL_RING))
    for i in range(3000):
        pub.send(i, SIZE)
        assert number_in(sub.receive()) == i


def test_lagging_subscriber_of_enlarged_ring_gets_no_invalid_data(endpoint: str, stack: Any) -> None:
    with subscriber(endpoint, timeout_ms=0, segment_size=SMALL_RING) as sub:
        pub = stack.enter_context(StockPublisher(endpoint, 8 * SMALL_RING))
        for first in range(0, 5000, 500):
            pub.flood(500, 64, SMALL_RING, first=first)
            assert None not in map(sequence_of, sub.receive_many())
        pub.send(9999)
        assert sequence_of(sub.receive_many()[-1]) == 9999
        assert sub.lost is None


def test_sleeping_subscriber_is_woken_after_the_ring_is_enlarged(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(msgq.pub_sock(endpoint, SMALL_RING))
    sub = stack.enter_context(subscriber(endpoint))
    fd = sub.fileno()
    stock = stack.enter_context(StockPublisher(endpoint, 8 * SMALL_RING))
    for i in range(300):
        stock.send(i, SIZE)
        assert number_in(sub.receive()) == i
    assert sub.fileno() == fd
    ours = stack.enter_context(msgq.pub_sock(endpoint))
    for i in range(300):
        ours.send(message(i, SIZE))
        assert number_in(sub.receive()) == i
    with pytest.raises(msgq.IpcError):
        pub.send(b"x")


def test_msgq_publisher_continues_after_stock_subscriber_enlarges_the_ring(endpoint: str, stack: Any) -> None:
    """Positions say where a lap ends, so the stock reader, who has more mapped, reads it as it is."""
    with msgq.pub_sock(endpoint, SMALL_RING) as pub, msgq.sub_sock(endpoint) as sub:
        stock = stack.enter_context(StockSubscriber(endpoint, 8 * SMALL_RING))
        late = stack.enter_context(subscriber(endpoint))
        assert stock.receive().size == 0
        for i in range(5 * LAP // SIZE):
            pub.send(message(i, SIZE))
            assert stock.receive().sequence == i
            assert [sequence_of(one) for one in sub.receive_many()] == [i]
            assert [sequence_of(one) for one in late.receive_many()] == [i]
        assert sub.lost == late.lost == 0


def test_recorder_continues_after_the_ring_is_enlarged(endpoint: str, stack: Any, tmp_path: Path) -> None:
    with Child(children.record, endpoint, LARGE, str(tmp_path)) as child:
        assert child.hear() == "recording"
        pub = stack.enter_context(msgq.pub_sock(endpoint))
        pub.send_many([message(i, SIZE) for i in range(10)])
        truncate_ring(endpoint, stack)
        send_until_cut(pub, 2000)
        child.say(1)
        assert child.hear() == "noticed"
        pub.close()
        again = stack.enter_context(msgq.pub_sock(endpoint))
        child.say(1)

        def sent() -> bool:
            again.send(message(77, SIZE))
            return child_answers(child)

        wait_until(sent, "the recorder goes on", interval=0.05)
        assert child.hear() == "goes on"
        child.say()
        recorded = child.result()
        assert None not in recorded
        assert recorded[-1] == 77


def child_answers(child: Child) -> bool:
    assert child.process.stdout is not None
    return bool(select.select([child.process.stdout], [], [], 0)[0])


def test_stats_raise_an_error_after_truncation_to_zero_bytes(endpoint: str) -> None:
    with Child(children.look, endpoint, LARGE) as child:
        assert child.hear() == 1
        os.truncate(segment_path(endpoint), 0)
        child.say()
        for text in child.result():
            assert_names_both(text, 0)


@pytest.mark.parametrize("kind", ["sent", "fault", "faulthandler"])
def test_sigbus_of_a_file_outside_msgq_kills_the_process(
    endpoint: str, kind: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with Child(children.sees_signals, kind, endpoint) as child:
        assert child.hear() == "ready"
        assert child.process.wait() == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in capfd.readouterr().err) == (kind == "faulthandler")


@pytest.mark.parametrize(("kind", "seen"), [("python", [signal.SIGBUS]), ("ignored", [])])
def test_sigbus_of_a_file_outside_msgq_reaches_the_previous_handler(endpoint: str, kind: Any, seen: Any) -> None:
    with Child(children.sees_signals, kind, endpoint) as child:
        assert child.hear() == "ready"
        assert child.hear() == seen
        assert child.result() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_sigbus_handler_works_with_faulthandler(
    endpoint: str, stack: Any, when: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with Child(children.resize_under_faulthandler, endpoint, LARGE, when) as child:
        assert child.hear() == "sending"
        truncate_ring(endpoint, stack)
        assert_names_both(child.hear())
        child.say()
        assert child.process.wait() == -signal.SIGBUS
    if when == "before":
        assert capfd.readouterr().err.count("Fatal Python error: Bus error") == 1  # the one that killed it


def test_sigbus_handler_serves_two_threads_at_the_same_time(endpoint: str, stack: Any) -> None:
    for _ in range(5):
        with Child(children.two_threads, endpoint, LARGE) as child:
            assert child.hear() == "ready"
            truncate_ring(endpoint, stack, 100_000)
            child.say()
            assert_names_both(child.result()[0], 100_000)
        segment_path(endpoint).unlink()


def test_sigbus_handler_is_inherited_by_forked_children(endpoint: str, stack: Any) -> None:
    with Child(children.forked, endpoint, LARGE) as child:
        assert child.hear() == "ready"
        truncate_ring(endpoint, stack)
        child.say()
        codes, of_sub, of_pub = child.result()
        assert codes == [0, -signal.SIGBUS]
        assert_names_both(of_sub)
        assert_names_both(of_pub)


def test_publisher_without_the_handler_is_killed_by_sigbus(endpoint: str, stack: Any) -> None:
    """The publisher first sends a lap. In pages without memory, the second lap would fail without SIGBUS."""
    with Child(children.send_a_lap_then_more, endpoint, LARGE, env={"MSGQ_SIGBUS": "0"}) as child:
        assert child.hear() == "sending"
        truncate_ring(endpoint, stack)
        child.say()
        assert child.process.wait() == -signal.SIGBUS


@pytest.mark.parametrize("sigbus", ["0", "1"])
def test_wait_for_readers_raises_after_the_ring_shrinks(
    endpoint: str, sigbus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGQ_SIGBUS", sigbus)
    with msgq.pub_sock(endpoint, LARGE) as pub:
        waiting = Task(pub.wait_for_readers, None)
        os.truncate(segment_path(endpoint), 384 + SMALL)
        with pytest.raises(SegmentSizeError) as raised:
            waiting.result()
        assert_names_both(str(raised.value))

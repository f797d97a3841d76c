"""Stock processes (`tests/stock/peer.c`) and ours on one segment: messages, wake-ups, sizes and places."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import MessageSizeError, SegmentSizeError
from tests.stock import (
    DATA_SIZE,
    EXIT_ABORT,
    SLOTS,
    Header,
    PeerDiedError,
    StockPublisher,
    StockSubscriber,
    message,
    segment_path,
    sequence_of,
)
from tests.stock.ours import (
    KINDS,
    SMALL_RING,
    OurPublisher,
    Receiving,
    publisher,
    remove,
    sequences,
    signal_state,
    subscriber,
    wait_joined,
)
from tests.support import DEADLINE, DEADLINE_MS, Task, wait_until

pytest_plugins = ("tests.stock.fixtures",)


# ---- a stock publisher and our subscribers ----


@pytest.mark.parametrize("publisher_first", [True, False])
def test_msgq_subscriber_receives_messages_of_stock_publisher(endpoint: str, stack: Any, publisher_first: Any) -> None:
    sub = None if publisher_first else stack.enter_context(subscriber(endpoint))
    pub = stack.enter_context(StockPublisher(endpoint))
    sub = sub or stack.enter_context(subscriber(endpoint))
    for sequence, size in enumerate([12, 13, 19, 20, 64, 4095, 300_000]):
        pub.send(sequence, size)
        data = sub.receive()
        assert (len(data), sequence_of(data)) == (size, sequence)
    assert sub.receive(non_blocking=True) is None


@KINDS
def test_stock_and_msgq_subscribers_receive_equal_messages_over_many_laps(endpoint: str, stack: Any, kind: Any) -> None:
    pub = stack.enter_context(publisher(kind, endpoint, SMALL_RING))
    ours = [stack.enter_context(subscriber(endpoint, passive=passive)) for passive in (False, True)]
    stock = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    for first in range(0, 600, 3):  # some 30 laps
        pub.flood(3, 12, 7000, first=first, seed=first)
        for sub in ours:
            assert sequences(sub) == [first, first + 1, first + 2]
        tally = stock.drain()
        assert (tally.count, tally.harm, tally.first) == (3, (0, 0, 0), first)


@KINDS
def test_conflating_stock_and_msgq_subscribers_receive_newest_message(endpoint: str, stack: Any, kind: Any) -> None:
    ours = stack.enter_context(subscriber(endpoint, conflate=True))
    pub = stack.enter_context(publisher(kind, endpoint))
    stock = stack.enter_context(StockSubscriber(endpoint, conflate=True))
    for first in (0, 5, 10):
        pub.flood(5, 12, 500, first=first)
        assert sequence_of(ours.receive()) == stock.receive().sequence == first + 4
        assert ours.receive(non_blocking=True) is None
        assert stock.receive().size == 0


@KINDS
def test_twenty_passive_subscribers_do_not_change_the_topic_header(endpoint: str, stack: Any, kind: Any) -> None:
    pub = stack.enter_context(publisher(kind, endpoint))
    pub.send(0)
    before = Header.read(endpoint)
    subs = [stack.enter_context(subscriber(endpoint, passive=True)) for _ in range(20)]
    assert Header.read(endpoint) == before
    pub.flood(10, first=1)
    for sub in subs:
        assert sequences(sub) == list(range(1, 11))
    after = Header.read(endpoint)
    assert (after.num_readers, after.read_uids) == (0, (0,) * SLOTS)


def test_poller_returns_the_socket_of_a_stock_publisher(endpoint: str, stack: Any) -> None:
    names = [endpoint, endpoint + "-b", endpoint + "-c"]
    for name in names[1:]:
        stack.callback(remove, name)
    pubs = [stack.enter_context(StockPublisher(name)) for name in names]
    subs = [stack.enter_context(subscriber(name, passive=name == names[2])) for name in names]
    poller = msgq.Poller()
    for sub in subs:
        poller.registerSocket(sub)
    assert poller.poll(0) == []
    for i in (1, 0, 2):
        pubs[i].send(i)
        (ready,) = poller.poll(DEADLINE_MS)
        assert ready is subs[i]
        assert sequence_of(ready.receive(non_blocking=True)) == i
    assert poller.poll(0) == []


@pytest.mark.parametrize("options", [{}, {"conflate": True}, {"passive": True}], ids=["plain", "conflate", "passive"])
def test_sleeping_thread_is_woken_by_sends_of_later_stock_publisher(endpoint: str, stack: Any, options: Any) -> None:
    before = signal_state()
    stack.enter_context(StockSubscriber(endpoint)).close()  # a passive subscriber needs a segment to look at
    sub = stack.enter_context(subscriber(endpoint, **options))
    thread = Receiving(sub, rounds=30)
    thread.wait_asleep()
    pub = stack.enter_context(StockPublisher(endpoint))
    if not options.get("passive"):
        wait_joined(pub)
    for sequence in range(30):
        thread.wait_asleep()
        pub.send(sequence)
        assert thread.wait_for(sequence + 1)[-1] == sequence
    assert thread.got == list(range(30))
    assert signal_state() == before


def test_sleeping_poller_is_woken_by_later_stock_publisher(endpoint: str, stack: Any) -> None:
    sub = stack.enter_context(subscriber(endpoint))
    other = stack.enter_context(subscriber(endpoint + "-idle"))
    stack.callback(remove, endpoint + "-idle")
    poller = msgq.Poller()
    poller.registerSocket(sub)
    poller.registerSocket(other)
    polling = Task(poller.poll, -1)
    polling.wait_asleep()
    pub = stack.enter_context(StockPublisher(endpoint))
    wait_joined(pub)
    polling.wait_asleep()
    pub.send(7)
    assert polling.result() == [sub]
    assert sequence_of(sub.receive()) == 7


def test_application_handler_is_not_called_for_signals_of_stock_publisher(endpoint: str, stack: Any) -> None:
    """os.kill reaches the application's handler, and the signals of a stock publisher do not."""
    calls: list[int] = []

    def handler(number: int, _frame: object) -> None:
        calls.append(number)

    stack.callback(signal.signal, signal.SIGUSR2, signal.signal(signal.SIGUSR2, handler))
    sub = stack.enter_context(subscriber(endpoint))
    thread = Receiving(sub, rounds=20)
    pub = stack.enter_context(StockPublisher(endpoint))
    for sequence in range(20):
        pub.send(sequence)
        os.kill(os.getpid(), signal.SIGUSR2)
        wait_until(partial(lambda sent: len(calls) > sent, sequence), "the application's handler is called")
        thread.wait_for(sequence + 1)
    assert signal.getsignal(signal.SIGUSR2) is handler
    assert calls == [signal.SIGUSR2] * 20


def test_signal_of_stock_publisher_does_not_kill_idle_subscriber(endpoint: str, stack: Any) -> None:
    """The default action of SIGUSR2 is death: a subscriber that is connected and idle must not die of it."""
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    sub = stack.enter_context(subscriber(endpoint, timeout_ms=1))
    pub = stack.enter_context(StockPublisher(endpoint))
    assert sub.receive() is None  # joins again, so that the slot names a thread of ours
    assert pub.header().read_uids[0] & 0xFFFF_FFFF in map(int, os.listdir("/proc/self/task"))
    pub.flood(100)
    assert sequences(sub) == list(range(100))


# ---- our publisher and stock subscribers ----


def test_sleeping_stock_reader_is_woken_by_each_msgq_send(endpoint: str, stack: Any) -> None:
    """It reports what ended its sleep of ten seconds: the signal, not the time-out."""
    pub = stack.enter_context(OurPublisher(endpoint))
    sub = stack.enter_context(StockSubscriber(endpoint))
    for sequence in range(20):
        sub.begin_receive(10_000)
        sub.wait_asleep()
        pub.send(sequence)
        got = sub.end_receive()
        assert (got.sequence, got.good, got.how) == (sequence, True, "signal")


def pending_signal(peer: StockSubscriber) -> bool:
    """Say whether SIGUSR2 waits for a peer that is stopped."""
    status = Path(f"/proc/{peer.pid}/status").read_text()
    return bool(int(status.split("SigPnd:")[1].split()[0], 16) >> (signal.SIGUSR2 - 1) & 1)


def signalled_by_a_send(pub: OurPublisher, peer: StockSubscriber, sequence: int) -> bool:
    """Say whether a message is announced by a signal, to a peer that stands still meanwhile."""
    peer.process.send_signal(signal.SIGSTOP)
    peer.wait_stopped()
    pub.send(sequence)
    signalled = pending_signal(peer)
    peer.resume()
    return signalled


def test_msgq_send_signals_stock_reader_only_if_reader_may_sleep(endpoint: str, stack: Any) -> None:
    """It sleeps when it has found nothing more: not if it came on since the last message, and is still behind."""
    pub = stack.enter_context(OurPublisher(endpoint))
    sub = stack.enter_context(StockSubscriber(endpoint))
    for sequence in range(4):
        pub.send(sequence)
    assert sub.receive().sequence == 0
    assert not signalled_by_a_send(pub, sub, 4), "it came on, and has more to read"
    assert signalled_by_a_send(pub, sub, 5), "it stands still"
    assert sub.receive().sequence == 1
    assert not signalled_by_a_send(pub, sub, 6)
    assert sub.drain().last == 6
    assert signalled_by_a_send(pub, sub, 7), "it has found nothing more"
    assert signalled_by_a_send(pub, sub, 8), "perhaps the signal came just before it fell asleep"
    assert sub.drain().last == 8


def test_stock_reader_asleep_at_end_of_lap_is_signalled_by_msgq_send(endpoint: str, stack: Any) -> None:
    """A reservation that was given up may have published a wrap mark; the reader passes it, and sleeps behind it."""
    pub = stack.enter_context(OurPublisher(endpoint, SMALL_RING))
    sub = stack.enter_context(StockSubscriber(endpoint, SMALL_RING))
    for sequence in range(40):
        pub.send(sequence, 1500)
        assert sub.drain().last == sequence
        with contextlib.suppress(ZeroDivisionError), pub.socket.reserve(20_000):
            raise ZeroDivisionError
        sub.receive()
        assert signalled_by_a_send(pub, sub, 1000 + sequence)
        assert sub.drain().last == 1000 + sequence


@pytest.mark.parametrize("route", ["send_many", "reserve"])
def test_send_many_and_reserve_wake_sleeping_stock_reader(endpoint: str, stack: Any, route: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint))
    sub = stack.enter_context(StockSubscriber(endpoint))
    sub.begin_receive(10_000)
    sub.wait_asleep()
    if route == "send_many":
        pub.socket.send_many([message(0), message(1, 999)])
    else:
        for sequence in (0, 1):
            with pub.socket.reserve(100) as view:
                view[:] = message(sequence, 100)
    got = sub.end_receive()
    assert (got.sequence, got.good, got.how) == (0, True, "signal")
    assert sub.receive().sequence == 1


def test_stock_publisher_counts_polling_msgq_reader_before_first_send(endpoint: str, stack: Any) -> None:
    """Stock programs wait for their readers before they send the first message."""
    sub = stack.enter_context(subscriber(endpoint))
    pub = stack.enter_context(StockPublisher(endpoint))
    assert not pub.all_readers_updated()
    assert sub.receive(non_blocking=True) is None
    assert pub.all_readers_updated()


@KINDS
def test_msgq_all_readers_updated_includes_stock_readers(endpoint: str, stack: Any, kind: Any) -> None:
    pub = stack.enter_context(publisher(kind, endpoint))
    assert not pub.all_readers_updated()
    ours = stack.enter_context(subscriber(endpoint))
    stock = stack.enter_context(StockSubscriber(endpoint))
    pub.send(0)
    assert not pub.all_readers_updated()
    assert sequences(ours) == [0]
    assert not pub.all_readers_updated()
    assert stock.drain().count == 1
    assert pub.all_readers_updated()


def test_all_readers_updated_ignores_dead_stock_reader(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint))
    ours = stack.enter_context(subscriber(endpoint))
    dead = stack.enter_context(StockSubscriber(endpoint))
    pub.socket.wait_for_readers(timeout=DEADLINE, n=2)
    pub.send(0)
    assert sequences(ours) == [0]
    assert not pub.all_readers_updated()
    dead.kill()
    assert pub.all_readers_updated()


def test_empty_message_is_refused_only_while_a_stock_reader_is_attached(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(OurPublisher(endpoint))
    ours = stack.enter_context(subscriber(endpoint))
    pub.socket.send(b"")
    assert ours.receive() == b""
    stock = stack.enter_context(StockSubscriber(endpoint))
    for call, refused in ((pub.socket.send, b""), (pub.socket.send_many, [message(1), b""])):
        with pytest.raises(MessageSizeError) as caught:
            call(refused)
        assert endpoint in str(caught.value)
    pub.send(2)
    tally = stock.drain()
    assert (tally.harm, tally.last) == ((0, 0, 0), 2)
    assert sequences(ours)[-1] == 2


def test_empty_stock_message_reaches_msgq_subscriber_and_aborts_stock_subscriber(endpoint: str, stack: Any) -> None:
    ours = stack.enter_context(subscriber(endpoint))
    stock = stack.enter_context(StockSubscriber(endpoint))
    pub = stack.enter_context(StockPublisher(endpoint))
    assert stock.receive().size == 0
    pub.send(0, 0)
    pub.send(1)
    with pytest.raises(PeerDiedError) as caught:
        stock.receive()
    assert caught.value.code == EXIT_ABORT
    assert ours.receive() == b""
    assert sequence_of(ours.receive()) == 1


@pytest.mark.parametrize("published_before", [False, True])
def test_msgq_publisher_does_not_signal_a_stock_reader_after_exec(
    endpoint: str, stack: Any, published_before: Any
) -> None:
    """A thread that neither catches nor blocks SIGUSR2 would die of it, even one that caught it a moment ago."""
    pub = stack.enter_context(OurPublisher(endpoint))
    sub = stack.enter_context(StockSubscriber(endpoint))
    if published_before:
        pub.send(0)
    sub.become("cat")
    sub.begin("first")
    sub.reply()
    pub.send(1)
    sub.begin("second")
    sub.reply()
    assert sub.process.poll() is None


def test_stock_publisher_kills_a_stock_reader_after_exec(endpoint: str, stack: Any) -> None:
    """The proof that the test above can fail."""
    pub = stack.enter_context(StockPublisher(endpoint))
    sub = stack.enter_context(StockSubscriber(endpoint))
    sub.become("cat")
    sub.begin("first")
    sub.reply()
    pub.send(1)
    assert sub.wait() == -signal.SIGUSR2


# ---- sizes and places ----


def test_msgq_socket_uses_the_size_of_a_stock_segment(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(StockPublisher(endpoint, 4 * SMALL_RING))
    sub = stack.enter_context(subscriber(endpoint))
    stock = stack.enter_context(StockSubscriber(endpoint, 4 * SMALL_RING))
    for first in range(0, 100, 5):
        pub.flood(5, 5000, 20_000, first=first)
        assert sequences(sub) == list(range(first, first + 5))
    ours = stack.enter_context(OurPublisher(endpoint))
    assert stock.receive().size == 0
    for first in range(0, 100, 5):
        ours.flood(5, 5000, 20_000, first=first)
        assert stock.drain().count == 5
    assert segment_path(endpoint).stat().st_size == 384 + 4 * SMALL_RING


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_other_explicit_size_for_stock_segment_is_refused(endpoint: str, stack: Any, role: Any) -> None:
    pub = stack.enter_context(StockPublisher(endpoint, SMALL_RING))
    connect = OurPublisher if role == "publisher" else lambda name, size: subscriber(name, segment_size=size)
    with pytest.raises(SegmentSizeError) as caught:
        connect(endpoint, DATA_SIZE)
    assert str(SMALL_RING) in str(caught.value)
    assert str(DATA_SIZE) in str(caught.value)
    assert segment_path(endpoint).stat().st_size == 384 + SMALL_RING
    pub.send(0)


@pytest.mark.parametrize("call", ["receive", "receive_many"])
def test_subscriber_of_segment_enlarged_by_stock_gets_error_or_loss(endpoint: str, stack: Any, call: Any) -> None:
    """It writes beyond our map. That may be an error or lost messages; who connects again sees all."""
    sub = stack.enter_context(subscriber(endpoint, timeout_ms=0, segment_size=SMALL_RING))
    pub = stack.enter_context(StockPublisher(endpoint, 4 * SMALL_RING))
    pub.flood(20, 5000, 5000)
    with contextlib.suppress(msgq.IpcError):
        messages = sub.receive_many() if call == "receive_many" else [sub.receive()]
        assert messages not in ([], [None])
        assert None not in map(sequence_of, messages)
    again = stack.enter_context(subscriber(endpoint))
    pub.send(500)
    assert sequences(again) == [500]


def test_stock_and_msgq_use_the_same_prefix(prefix: str, stack: Any) -> None:
    sub = stack.enter_context(subscriber("some"))
    pub = stack.enter_context(StockPublisher("some"))
    pub.send(3)
    assert sequences(sub) == [3]
    assert segment_path("some") == Path(f"/dev/shm/msgq_{prefix}/some")
    assert segment_path("some").exists()

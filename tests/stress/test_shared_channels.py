"""Channels in many threads at once: loans, views, growing pools, room and statistics; also without the GIL.

See test_shared_handles.py for what the tests demand of all kinds.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytest

import msgq
from msgq.errors import ConcurrentUseError, StateError, TooManyViewsError
from tests.stress.thread_calls import (
    BYTES,
    CALLS,
    LARGE,
    THREADS,
    Cycle,
    check_once,
    end_in_other_threads,
    end_wait_by_close,
    flow,
    in_threads,
    number_of,
    repeat,
    spread,
    try_call,
    words,
)
from tests.support import run_child

# ---- views ----


def check_and_release(view: Any) -> None:
    number_of(view)
    view.release()


def check_and_drop(view: Any) -> None:
    with memoryview(view) as memory:
        number_of(memory)


def check_in_cycle(view: Any) -> None:
    number_of(view)
    Cycle(view)


def release_in_two_threads(view: Any) -> None:
    other = threading.Thread(target=view.release)
    other.start()
    view.release()
    other.join()


def release_views_anywhere() -> None:
    channel = msgq.Channel("views", capacity=8)
    pub, sub = channel.publisher(slots=24, slot_bytes=BYTES), channel.subscriber(max_views=16)

    def receive(pass_on: Callable[[Any], None]) -> None:
        for number in range(CALLS):
            pub.send(words(number), timeout=None)
            with contextlib.suppress(TooManyViewsError):
                view = sub.receive_view(0)
                if view is not None:
                    pass_on(view)
                    del view

    end_in_other_threads(receive, [check_and_release, check_and_drop, check_in_cycle, release_in_two_threads])
    # A view that another thread has dropped ends when the thread that created it next runs.
    in_threads(lambda: None)
    assert sub.views_held == 0
    pins = channel.stats().viewers
    assert [holder.views for holder in pins] == [0]
    sub.close()
    assert not channel.stats().subscribers


def close_beside_views() -> None:
    """A subscriber is closed while other threads release its views: the last view leaves the rows."""
    channel = msgq.Channel("views", capacity=512)
    pubs = [channel.publisher(slots=200, slot_bytes=BYTES) for _ in range(4)]  # a lock of one pool is not enough
    for number in range(CALLS // 4):
        sub = channel.subscriber(max_views=512)
        for pub in pubs * 128:
            pub.send(words(number))
        parts = [[sub.receive_view(0) for _ in range(512 // THREADS)] for _ in range(THREADS)]
        in_threads(sub.close, *[lambda part=part: [view.release() for view in part] for part in parts])
        assert sub.views_held == 0
        stats = channel.stats()
        assert (stats.subscribers, stats.viewers) == ((), ()), stats


def share_views() -> None:
    """All threads receive views with one subscriber."""
    channel = msgq.Channel("views", capacity=1024)
    pub, sub = channel.publisher(slots=1100, slot_bytes=BYTES), channel.subscriber(max_views=64)

    def receive() -> Any:
        with contextlib.suppress(TooManyViewsError), sub.receive_view(0) or contextlib.nullcontext() as view:
            return None if view is None else bytes(view)
        return None

    sent, *received = flow(spread(lambda number: pub.send(words(number)))[:4], receive, 4)
    check_once(sent, [*chain(*received)], sub.lost)
    assert sub.views_held == 0


# ---- loans ----


def publish(loan: Any) -> None:
    with contextlib.suppress(ConcurrentUseError):
        loan.publish()


def publish_in_two_threads(loan: Any) -> None:
    in_threads(*[lambda: publish_or_refuse(loan)] * 2)


def publish_or_refuse(loan: Any) -> None:
    with contextlib.suppress(StateError, ConcurrentUseError):
        loan.publish()


def end_loans_anywhere() -> None:
    channel = msgq.Channel("loans", capacity=4096)
    pub, sub = channel.publisher(slots=32, slot_bytes=BYTES), channel.subscriber()

    def lend(pass_on: Callable[[Any], None]) -> None:
        for number in range(CALLS):
            loan = pub.loan(BYTES, timeout=None)
            loan[:] = words(number)
            pass_on(loan)
            del loan
            if number % 16 == 0:
                gc.collect()

    end_in_other_threads(lend, [publish, lambda loan: loan.discard(), lambda _: None, Cycle, publish_in_two_threads])
    in_threads(lambda: None)
    received = [number_of(message) for message in sub.receive_many()]
    check_once(list(range(pub.sent)), list(range(len(received))), sub.lost)
    assert len(set(received)) == len(received), "came twice"
    loans = [pub.loan(BYTES) for _ in range(pub.slots)]  # no slot is lost
    assert len(loans) == 32


def end_loans_at_once() -> None:
    """Each slot is free after its loan, and belongs to one loan, although threads end and take loans at once."""
    channel = msgq.Channel("loans", capacity=1024)
    pub, sub = channel.publisher(slots=512, slot_bytes=BYTES), channel.subscriber()
    for _ in range(CALLS // 10):
        loans = [pub.loan(BYTES) for _ in range(384)]
        parts = [loans[i::THREADS] for i in range(THREADS)]
        taken = in_threads(
            *[lambda part=part: [loan.discard() for loan in part] for part in parts],
            *[lambda: [pub.loan(BYTES) for _ in range(64)]] * 2,
        )
        loans = [*chain(*taken[THREADS:]), *[pub.loan(BYTES) for _ in range(384)]]
        for number, loan in enumerate(loans):
            loan[:] = words(number)
        for loan in loans:
            loan.publish()
        assert [number_of(message) for message in sub.receive_many()] == list(range(512))


def grow_pools() -> None:
    """Messages grow, so that loans of earlier pools end beside sends of the next one."""
    channel = msgq.Channel("pools", capacity=1024)
    for _ in range(3):
        pub, sub = channel.publisher(slots=16, slot_bytes=BYTES), channel.subscriber()

        def lend(number: int, pub: Any = pub) -> None:
            size = BYTES << (number % CALLS * 6 // CALLS)
            with pub.loan(size, timeout=1.0) as loan:
                loan[:BYTES] = words(number)
                loan[BYTES:] = bytes(size - BYTES)

        def send(number: int, pub: Any = pub) -> None:
            pub.send(words(number) + bytes(BYTES * (number % 64)), timeout=1.0)

        def receive(sub: Any = sub) -> Any:
            message = sub.receive(0)
            return None if message is None else message[:BYTES]

        half = THREADS // 2
        senders = [repeat(send if i % 2 else lend, 1 + i * CALLS) for i in range(half)]
        sent, *received = flow(senders, receive, 2)
        check_once(sent, [*chain(*received)], sub.lost)
        pub.close()
        sub.close()


def share_large_copies() -> None:
    channel = msgq.Channel("large", capacity=8)
    pub, sub = channel.publisher(slots=10, slot_bytes=LARGE), channel.subscriber()

    def send(first: int) -> list[int]:
        return [
            n for n in range(first, first + CALLS // 20) if try_call(partial(pub.send, words(n) * (LARGE // BYTES)))
        ]

    senders = [partial(send, 1 + i * CALLS) for i in range(4)]

    def receive() -> Any:
        message = sub.receive(0)
        if message is not None:
            assert message == message[:BYTES] * (LARGE // BYTES), "torn"
        return None if message is None else message[:BYTES]

    sent, *received = flow(senders, receive, 4)
    check_once(sent, [*chain(*received)], sub.lost)


# ---- room and statistics ----


def wait_for_room_beside_readers() -> None:
    """A publisher that waits for room loses nothing, while threads read statistics and release views."""
    channel = msgq.Channel("room", capacity=8)
    pub, sub = channel.publisher(slots=16, slot_bytes=BYTES), channel.subscriber()
    is_over = threading.Event()

    def send() -> None:
        try:
            for number in range(CALLS):
                while not try_call(lambda: pub.wait_for_room(timeout=None)):
                    pass
                pub.send(words(number))
        finally:
            is_over.set()

    def receive() -> list[int]:
        taken = list[int]()
        while len(taken) < CALLS:
            with contextlib.suppress(ConcurrentUseError):
                view = sub.receive_view(0.001)
                if view is not None:
                    taken.append(number_of(view))
                    view.release()
        return taken

    def read() -> None:
        while not is_over.is_set():
            channel.stats()
            for handle in (pub, sub):
                handle.stats()
                repr(handle)
            if sub.last is not None:
                assert sub.last.publisher.name
            assert 0 <= sub.views_held <= 8
            assert pub.sent >= sub.received

    results = in_threads(send, receive, read, read)
    assert (results[1], sub.lost) == (list(range(CALLS)), 0)


def close_channels_beside_openings() -> None:
    """A channel object is closed while other threads open handles and read statistics."""

    def use(channel: msgq.Channel, number: int) -> None:
        with contextlib.suppress(StateError):
            channel.stats()
            with channel.subscriber() as sub, channel.publisher(slots=4) as pub:
                pub.send(words(number))
                assert sub.received == 0
            channel.stats()

    for number in range(CALLS // 10):
        channel = msgq.Channel("closed")
        in_threads(channel.close, *[partial(use, channel, number)] * 3)


def close_beside_waits() -> None:
    """A close beside the begin of each wait ends the wait."""
    channel = msgq.Channel("waits", capacity=4)
    for number in range(CALLS // 4):
        pub, lagging, viewer = channel.publisher(slots=4), channel.subscriber(), channel.subscriber()
        views = []
        for _ in range(4):
            pub.send(b"x")
            views.append(viewer.receive_view(0))
        empty, without_room = channel.subscriber(), channel.publisher(slots=4)
        waits: list[tuple[Any, Callable[[], Any]]] = [
            (pub, partial(pub.send, b"x", timeout=None)),
            (pub, partial(pub.loan, 1, timeout=None)),
            (without_room, partial(without_room.wait_for_room, timeout=None)),
            (empty, empty.receive),
            (empty, partial(empty.receive_into, bytearray(8))),
            (viewer, viewer.receive_view),
        ]
        handle, call = waits[number % 6]
        end_wait_by_close(handle, call, number * 7 % 2000)
        for view in views:
            view.release()
        for each in (pub, lagging, viewer, empty, without_room):
            each.close()


SHARED = [
    release_views_anywhere,
    close_beside_views,
    share_views,
    end_loans_anywhere,
    end_loans_at_once,
    grow_pools,
    share_large_copies,
    wait_for_room_beside_readers,
    close_channels_beside_openings,
    close_beside_waits,
]


@pytest.mark.parametrize("scenario", SHARED, ids=lambda each: each.__name__)
def test_threads_that_use_channels_at_once_break_nothing(prefix: str, scenario: Callable[[], None]) -> None:
    run_child(scenario)

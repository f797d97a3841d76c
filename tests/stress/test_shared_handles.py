"""Eight threads at once use one handle, or each its own, of every kind of endpoint; also without the GIL.

A handle is for one thread at a time, or for any number. Both mean: no crash, and no message or value that is torn,
doubled, or lost without being counted. The only error is ConcurrentUseError, and only of the first sort of handle.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import ConcurrentUseError, EndpointClosedError
from msgq.records import Board, Seqlock, SeqlockVector
from msgq.workqueue import MessageQueue
from tests.stress.thread_calls import (
    CALLS,
    ROW,
    THREADS,
    WORDS,
    check_once,
    flow,
    in_threads,
    number_of,
    repeat,
    spread,
    words,
)
from tests.support import run_child
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer

# ---- one handle in all threads ----


def share_topic_publisher() -> None:
    pub, sub = msgq.pub_sock("shared"), msgq.sub_sock("shared")
    sent, received = flow(spread(lambda number: pub.send(words(number))), lambda: sub.receive(True), 1)
    check_once(sent, received, sub.lost)


def share_topic_batches() -> None:
    pub, sub = msgq.pub_sock("shared", 1 << 20), msgq.sub_sock("shared")
    sent, received = flow(
        spread(lambda number: pub.send_many([words(number), bytearray(words(number + (1 << 32)))])),
        lambda: sub.receive(True),
        1,
    )
    check_once([*sent, *[number + (1 << 32) for number in sent]], received, sub.lost)


def share_topic_subscriber() -> None:
    pub, sub = msgq.pub_sock("shared"), msgq.sub_sock("shared")
    sent, *received = flow([repeat(lambda number: pub.send(words(number)), 1)], lambda: sub.receive(True), THREADS)
    check_once(sent, chain(*received), sub.lost)


def share_waiting_subscriber() -> None:
    pub, sub = msgq.pub_sock("shared"), msgq.sub_sock("shared")
    sent, *received = flow(
        [repeat(lambda number: pub.send(words(number)), 1)], lambda: sub.receive(timeout=0.001), THREADS
    )
    check_once(sent, chain(*received), sub.lost)


def share_poller() -> None:
    pubs = [msgq.pub_sock(name) for name in "ab"]
    subs = [msgq.sub_sock(name) for name in "ab"]
    poller = msgq.Poller()
    for sub in subs:
        poller.registerSocket(sub)

    def receive() -> Any:
        for sub in poller.poll(1):
            message = sub.receive(True)
            if message is not None:
                return message
        return None

    def send_to(pub: msgq.PubSocket) -> Callable[[int], None]:
        return lambda number: pub.send(words(number))

    senders = [repeat(send_to(pub), i * CALLS) for i, pub in enumerate(pubs)]
    sent, *received = flow(senders, receive, THREADS)
    check_once(sent, chain(*received), sum(sub.lost or 0 for sub in subs))


def share_channel_publisher() -> None:
    channel = msgq.Channel("shared", capacity=1024)
    pub, sub = channel.publisher(slot_bytes=64), channel.subscriber()
    sent, received = flow(spread(lambda number: pub.send(words(number))), lambda: sub.receive(0), 1)
    check_once(sent, received, sub.lost)


def share_channel_subscriber() -> None:
    channel = msgq.Channel("shared", capacity=1024)
    pub, sub = channel.publisher(slot_bytes=64), channel.subscriber()

    def receive() -> Any:
        view = sub.receive_view(0)
        return None if view is None else bytes(view)

    sent, *received = flow([repeat(lambda number: pub.send(words(number)), 1)], receive, THREADS)
    check_once(sent, chain(*received), sub.lost)


def share_loans() -> None:
    channel = msgq.Channel("shared", capacity=1024)
    pub, sub = channel.publisher(slot_bytes=64), channel.subscriber()

    def lend(number: int) -> None:
        with pub.loan(8 * WORDS, timeout=1.0) as loan:
            loan[:] = words(number)

    sent, received = flow(spread(lend), lambda: sub.receive(0), 1)
    check_once(sent, received, sub.lost)


def share_queue() -> None:
    queue = MessageQueue("shared", max_messages=8, max_message_size=8 * WORDS)

    def receive() -> Any:
        message = queue.receive(0.001)
        return None if message is None else message.data

    sent, *received = flow(spread(lambda number: queue.send(words(number)))[:4], receive, 4)
    check_once(sent, chain(*received), 0)


def share_jobs() -> None:
    queue = MessageQueue("shared", max_messages=8, max_message_size=8 * WORDS)

    def receive() -> Any:
        job = queue.take(0.001)
        if job is None:
            return None
        with job:
            return job.data

    sent, *received = flow(spread(lambda number: queue.send(words(number)))[:4], receive, 4)
    check_once(sent, chain(*received), 0)


def share_vector() -> None:
    vector = SeqlockVector("shared", ROW, 16)
    taken = threading.Event()

    def write(number: int) -> None:
        if number % 2:
            vector[number % 16] = ((number,) * WORDS,)
        else:
            vector.write([number % 16], np.full(1, number, "<u8").repeat(WORDS).view(ROW))

    def read() -> None:
        while not taken.is_set():
            for i in range(16):
                number_of(vector[i].tobytes())
            number_of(vector.read()[3].tobytes())
            with contextlib.suppress(ConcurrentUseError):  # one thread at a time reads changes
                vector.changes(4)

    def write_all(run: Callable[[], list[int]]) -> Callable[[], None]:
        def writing() -> None:
            run()
            taken.set()

        return writing

    in_threads(*map(write_all, spread(write)[:4]), *[read] * 4)


def share_record() -> None:
    record = Seqlock("shared", ROW)
    first = np.zeros(1, ROW)[0]

    def use(number: int) -> None:
        record.write(((number,) * WORDS,))
        number_of(record.value.tobytes())
        record.value = first
        number_of(record.read().tobytes())

    in_threads(*spread(use))


def share_board() -> None:
    board = Board("shared", THREADS, 8 * WORDS)

    def use(number: int) -> None:
        key = f"key{number // CALLS}"
        with board.declare(key) as entry:
            entry.write(words(number))
            assert number_of(board[key]) == number
            for _, data in board.items():
                if data:
                    number_of(data)
            board.changes()

    in_threads(*[repeat(use, i * CALLS) for i in range(THREADS)])


def share_frame_server() -> None:
    check_frames(spread, 1)


def share_frame_client() -> None:
    check_frames(lambda send: [repeat(send, 1)], THREADS)


def check_frames(sends: Callable[[Callable[[int], None]], list[Callable[[], list[int]]]], receivers: int) -> None:
    """Send frames in the threads of `sends`, and receive them in others."""
    server = VisionIpcServer("shared")
    server.create_buffers(0, 8, 4096, 1, FrameFormat.RAW)
    server.start_listener()
    client = VisionIpcClient("shared", 0, False)
    assert client.connect(True)

    def receive() -> Any:
        frame = client.recv(0 if receivers == 1 else 1)
        return None if frame is None else bytes(frame.array[: 8 * WORDS])

    def send(number: int) -> None:
        server.send(0, words(number) * (4096 // (8 * WORDS)), number)

    sent, *received = flow(sends(send), receive, receivers)
    check_once(sent, chain(*received), (client.lost or 0) + server.stats(0).dropped)
    server.close()


# ---- a handle in each thread ----


def use_own_topics() -> None:
    def use(i: int) -> None:
        pub, sub = msgq.pub_sock(f"own{i}"), msgq.sub_sock(f"own{i}")
        for number in range(CALLS):
            pub.send(words(number))
            assert number_of(sub.receive()) == number

    in_threads(*[partial(use, i) for i in range(THREADS)])


def open_and_close() -> None:
    """All threads open and close endpoints of each kind, the same names and others."""

    def use(number: int) -> None:
        name = f"name{number % 3}"
        with contextlib.suppress(msgq.MultiplePublishersError):
            msgq.pub_sock(name).close()
        msgq.sub_sock(name).close()
        with msgq.Channel(name) as channel:
            channel.subscriber().close()
            channel.publisher().close()
        MessageQueue(name, max_messages=8, max_message_size=8).close()
        SeqlockVector(name, "f8", 8).close()
        Board(f"board-{name}").close()

    def use_names(first: int) -> None:
        for number in range(first, first + CALLS // 10):
            use(number)

    in_threads(*[partial(use_names, 7 * i) for i in range(THREADS)])


def close_beside_calls() -> None:
    """A handle is closed while other threads use it: they get an error, or had their result."""
    for number in range(CALLS // 10):
        close_beside_calls_once(None if number % 2 else 0.0)


def close_beside_calls_once(timeout: float | None) -> None:
    channel = msgq.Channel("closed")
    pub, writer = msgq.pub_sock("closed"), channel.publisher()
    sub, reader = msgq.sub_sock("closed"), channel.subscriber()
    queue = MessageQueue("closed", max_messages=8, max_message_size=8)
    vector, board = SeqlockVector("closed", "f8", 8), Board("board")
    calls: list[Callable[[], Any]] = [
        lambda: pub.send(b"x"),
        lambda: writer.send(b"x"),
        lambda: sub.receive(timeout=timeout),
        lambda: reader.receive(timeout),
        lambda: queue.receive(timeout),
        lambda: vector.write(None, np.zeros(8)),
        board.changes,
    ]

    def call_until_closed(call: Callable[[], Any]) -> None:
        with contextlib.suppress(EndpointClosedError, ConcurrentUseError):
            while True:
                call()

    def close() -> None:
        for handle in (pub, writer, sub, reader, queue, vector, board):
            with contextlib.suppress(ConcurrentUseError):
                handle.close()

    in_threads(*[partial(call_until_closed, call) for call in calls], close)


SHARED = [
    share_topic_publisher,
    share_topic_batches,
    share_topic_subscriber,
    share_waiting_subscriber,
    share_poller,
    share_channel_publisher,
    share_channel_subscriber,
    share_loans,
    share_queue,
    share_jobs,
    share_vector,
    share_record,
    share_board,
    share_frame_server,
    share_frame_client,
    use_own_topics,
    open_and_close,
    close_beside_calls,
]


@pytest.mark.parametrize("scenario", SHARED, ids=lambda each: each.__name__)
def test_threads_that_use_handles_at_once_break_nothing(prefix: str, scenario: Callable[[], None]) -> None:
    run_child(scenario)

"""Processes whose ring others make smaller or larger; `tests.support.Child` starts these functions by name."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import mmap
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgq
from msgq.errors import SegmentSizeError
from msgq.impl.ring.core import TopicObserver
from msgq.recording import LogReader, Recorder
from tests.stock import message, number_in, sequence_of
from tests.support import DEADLINE, hear, in_fork, say, wait_until

SIZE = 1000  # bytes of each message


def _publisher(endpoint: str, segment_size: int = 0) -> msgq.PubSocket:
    pub = msgq.PubSocket()
    pub.connect(msgq.Context(), endpoint, segment_size)
    return pub


def _subscriber(endpoint: str, **options: Any) -> msgq.SubSocket:
    sub = msgq.SubSocket()
    sub.connect(msgq.Context(), endpoint, **options)
    return sub


def _until_resized(call: Callable[[], object]) -> str:
    """Call again and again, until the error that the ring was made smaller; return its text."""
    try:
        while True:
            call()
    except SegmentSizeError as error:
        return str(error)


def publish(endpoint: str, segment_size: int, how: str) -> list[Any]:
    """Send in a loop until the ring is made smaller; then close, connect again, and send what is heard."""
    pub = _publisher(endpoint, segment_size)
    data = message(1, SIZE)
    large = bytes(segment_size // 3 - 16)

    def reserve() -> None:
        with pub.reserve(SIZE) as view:
            view[:] = data

    ways: dict[str, Callable[[], object]] = {
        "send": lambda: pub.send(data),
        "large": lambda: pub.send(large),
        "send_many": lambda: pub.send_many([data] * 10),
        "reserve": reserve,
    }
    ways[how]()
    say("sending")
    texts = [_until_resized(ways[how])]
    texts += [_until_resized(lambda: pub.send(data)) for _ in range(2)]
    texts.append(_until_resized(lambda: pub.wait_for_readers(timeout=None)))
    pub.close()
    pub.connect(msgq.Context(), endpoint, 0)
    say(texts)
    hear()
    pub.send(message(7, SIZE))
    say("sent")
    hear()
    pub.close()
    return texts


def _receive(sub: msgq.SubSocket, how: str) -> Callable[[], Iterator[bytes]]:
    poller = msgq.Poller()
    buffer = bytearray(1 << 20)

    def by_poll() -> Iterator[bytes]:
        for one in poller.poll(-1):
            if (data := one.receive(True)) is not None:
                yield data

    def by_fd() -> Iterator[bytes]:
        select.select([sub.fileno()], [], [])
        yield from sub.receive_many()

    def into() -> Iterator[bytes]:
        yield bytes(buffer[: sub.receive_into(buffer)])

    def plainly() -> Iterator[bytes]:
        data = sub.receive()
        assert data is not None
        yield data

    if how == "poll":
        poller.registerSocket(sub)
    ways: dict[str, Callable[[], Iterator[bytes]]] = {
        "poll": by_poll,
        "fd": by_fd,
        "into": into,
        "many": lambda: iter(sub.receive_many(wait_for_one=True)),
        "array": lambda: (row.tobytes() for row in sub.receive_array(f"V{SIZE}", wait_for_one=True)),
        "async": lambda: iter([asyncio.run(_next(sub))]),
    }
    return ways.get(how, plainly)  # receive, conflate, passive


async def _next(sub: msgq.SubSocket) -> bytes:
    data: bytes = await sub.arecv()
    return data


def send_a_lap_then_more(endpoint: str, segment_size: int) -> None:
    """Send one lap of messages. After the parent has cut the ring, send another lap."""
    pub = _publisher(endpoint, segment_size)
    lap = [message(1, SIZE)] * (segment_size // SIZE)
    pub.send_many(lap)
    say("sending")
    hear()
    pub.send_many(lap)


def subscribe(endpoint: str, segment_size: int, how: str) -> list[Any]:
    """Receive until the ring is made smaller; every message must be one that was sent. Then connect again."""
    msgq.pub_sock(endpoint, segment_size).close()  # a passive one creates nothing
    sub = _subscriber(endpoint, conflate=how == "conflate", passive=how == "passive")
    receive = _receive(sub, how)
    say("joined")

    def take() -> None:
        for data in receive():
            assert sequence_of(data) is not None, data[:40]

    texts = [_until_resized(take) for _ in range(2)]
    sub.close()
    say(texts)
    hear()
    sub.connect(msgq.Context(), endpoint)
    sub.setTimeout(int(DEADLINE * 1000))
    say("again")
    return [number_in(sub.receive())]


def record(endpoint: str, segment_size: int, folder: str) -> list[Any]:
    """Record until word comes; return what was recorded."""
    msgq.pub_sock(endpoint, segment_size).close()
    with Recorder(f"{folder}/log.mcap", endpoints=[endpoint]) as recorder:
        say("recording")
        while hear() is not None:
            wait_until(lambda: recorder.stats().corrupt, "the recorder notices")
            say("noticed")
            count = recorder.stats().messages
            hear()
            wait_until(partial(lambda before: recorder.stats().messages > before, count), "the recorder goes on")
            say("goes on")
    return [sequence_of(bytes(one.data)) for one in LogReader(f"{folder}/log.mcap")]


def look(endpoint: str, segment_size: int) -> list[Any]:
    """Read statistics again and again."""
    pub = _publisher(endpoint, segment_size)
    pub.send(b"x")
    watch = TopicObserver(endpoint, "")
    say(watch.counts().messages)
    hear()
    return [*(_until_resized(look) for look in (watch.counts, watch.stats)), _until_resized(pub.all_readers_updated)]


def sees_signals(kind: str, endpoint: str) -> None:
    """Have the handler installed in some company, and get a SIGBUS that is not ours."""
    seen = []
    if kind == "python":
        signal.signal(signal.SIGBUS, lambda number, _: seen.append(number))
    if kind == "ignored":
        signal.signal(signal.SIGBUS, signal.SIG_IGN)
    if kind == "faulthandler":
        faulthandler.enable()
    pub = _publisher(endpoint)
    pub.send(b"x")
    say("ready")
    if kind in ("python", "ignored", "sent"):
        os.kill(os.getpid(), signal.SIGBUS)
        say(seen)
        return
    _fault()


def _fault() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        memory[mmap.PAGESIZE]


def resize_under_faulthandler(endpoint: str, segment_size: int, when: str) -> list[Any]:
    """Be cut with faulthandler enabled before or after the handler was installed; then be killed."""
    if when == "before":
        faulthandler.enable(file=sys.stderr)
    pub = _publisher(endpoint, segment_size)
    if when == "after":
        faulthandler.enable(file=sys.stderr)
    pub.send(message(1, SIZE))
    say("sending")
    text = _until_resized(lambda: pub.send(message(1, SIZE)))
    say(text)
    hear()
    os.kill(os.getpid(), signal.SIGBUS)
    return []


def forked(endpoint: str, segment_size: int) -> list[Any]:
    """Fork; then parent and child both look at a ring that was cut, and the child at a foreign fault."""
    sub = _subscriber(endpoint, segment_size=segment_size)
    pub = _publisher(endpoint)
    pub.send_many([message(1, SIZE)] * 300)
    say("ready")
    hear()

    def child() -> None:
        assert "segment_size" in _until_resized(lambda: sub.receive(True))
        signal.alarm(20)

    codes = [in_fork(child), in_fork(_fault)]
    return [codes, _until_resized(lambda: sub.receive(True)), _until_resized(lambda: pub.send(b"x" * SIZE))]


def two_threads(endpoint: str, segment_size: int) -> list[Any]:
    """Two threads write into what was cut, at once, without the GIL."""
    pub = _publisher(endpoint, segment_size)
    size = segment_size // 3 - 16
    pub.send(bytes(size))
    errors = []
    try:
        with pub.reserve(size) as view:
            half = size // 2
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
            gate = threading.Barrier(3)

            def fill(address: int) -> None:
                gate.wait()
                ctypes.memset(address, 7, half)

            threads = [threading.Thread(target=fill, args=(start + i * half,)) for i in range(2)]
            for thread in threads:
                thread.start()
            say("ready")
            hear()
            gate.wait()
            for thread in threads:
                thread.join()
    except SegmentSizeError as error:
        errors.append(str(error))
    return errors

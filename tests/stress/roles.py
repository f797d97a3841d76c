"""What the processes of the stress tests do. Each role runs in a process of its own (tests.support.Child)."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import msgq
from tests.fork_server import CHILD_LIFETIME
from tests.stress.traffic import Ledger, Stream, largest_message_size
from tests.support import DEADLINE, DEADLINE_MS, LONGER, hear, say

#: How a subscriber takes messages. "slow" pauses so that it is lapped again and again.
KINDS = ("plain", "conflate", "passive", "slow", "many", "into", "poller")

LAST = b"\xff" * 8


def subscriber(endpoint: str, **options: Any) -> msgq.SubSocket:
    """Return a subscriber whose receive waits, but not past the end of a test."""
    socket = msgq.SubSocket()
    socket.connect(msgq.context, endpoint, **options)
    socket.setTimeout(20)
    return socket


publisher = msgq.pub_sock


def has_input() -> bool:
    """Whether the parent has said something that was not heard yet."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def taker(kind: str, socket: msgq.SubSocket, stream: Stream) -> Callable[[], list[bytes]]:
    """Return a function that takes what is there, waiting a little when that is nothing."""
    rng, buffer, poller = random.Random(stream.seed), bytearray(stream.largest), msgq.Poller()
    poller.registerSocket(socket)

    def one() -> list[bytes]:
        return [] if (message := socket.receive()) is None else [message]

    def slow() -> list[bytes]:
        if rng.random() < 0.02:
            time.sleep(rng.random() * 0.005)  # the point is to be late, nothing waits for this
        return one()

    def into() -> list[bytes]:
        return [] if (size := socket.receive_into(buffer)) is None else [bytes(buffer[:size])]

    def polled() -> list[bytes]:
        return one() if poller.poll(20) else []

    def many() -> list[bytes]:
        return socket.receive_many(rng.choice((None, 1, 7, 100)), wait_for_one=True)

    return {"slow": slow, "into": into, "poller": polled, "many": many}.get(kind, one)


def subscribe(endpoint: str, kind: str, ring_bytes: int, seed: int, first: int | None = 0) -> dict[str, Any]:
    """Receive until the parent says that nothing more comes; report what came."""
    stream = Stream(seed, largest_message_size(ring_bytes), 1 if first == 0 else 16)
    with subscriber(endpoint, conflate=kind == "conflate", passive=kind == "passive") as socket:
        ledger, take = Ledger(stream, first, kind), taker(kind, socket, stream)
        say("ready")
        ending = False
        while True:
            messages = take()
            ledger.take(messages, socket.lost, kind != "many")
            if not messages and ending:
                break
            ending = ending or (not messages and has_input())
        return ledger.report(resets=socket.stats().resets)


def send_some(socket: msgq.PubSocket, stream: Stream, number: int, rng: random.Random) -> int:
    """Send the next message or messages, in one of the ways there are; return how many."""
    way = rng.random()
    if way < 0.7:
        socket.send(stream.message(number))
        return 1
    if way < 0.85:
        message = stream.message(number)
        with socket.reserve(len(message)) as view:
            view[:] = message
        return 1
    return socket.send_many([stream.message(number + i) for i in range(rng.randrange(1, 150))])


def flood(endpoint: str, ring_bytes: int, seed: int, seconds: float, smallest: int = 1) -> int:
    """Publish as fast as possible; return how many messages."""
    stream, rng, number = Stream(seed, largest_message_size(ring_bytes), smallest), random.Random(seed), 0
    with publisher(endpoint) as socket:
        say("ready")
        hear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            number += send_some(socket, stream, number, rng)
        assert socket.stats().messages == number
    return number


def come_and_go(endpoint: str, ring_bytes: int, seed: int) -> int:
    """Join, take a few messages, leave, and again, until told to stop; return how many times."""
    stream, rng, times = Stream(seed, largest_message_size(ring_bytes), 16), random.Random(seed + os.getpid()), 0
    say("ready")
    while not has_input():
        kind = rng.choice(KINDS)
        with subscriber(endpoint, conflate=kind == "conflate", passive=kind == "passive") as socket:
            ledger, take = Ledger(stream, None, kind), taker(kind, socket, stream)
            for _ in range(rng.randrange(30)):
                ledger.take(take(), socket.lost, kind != "many")
        times += 1
    return times


def restart(endpoint: str, ring_bytes: int, seed: int, times: int, careful: bool, readers: int) -> int:
    """Connect, publish a few messages, close, and again. Careful: send only when everybody has read the last burst.

    The numbers go on where the last publisher stopped, as its successor counts them.
    """
    stream, rng, number = Stream(seed, largest_message_size(ring_bytes)), random.Random(seed), 0
    say("ready")
    for _ in range(times):
        with publisher(endpoint) as socket:
            assert socket.stats().messages == number, "a publisher goes on with the count of the one before it"
            for _ in range(rng.randrange(4)):
                if careful:
                    socket.wait_for_readers(DEADLINE, 0.0001, n=readers)
                    socket.wait_for_readers(DEADLINE, 0.0001)
                    assert socket.all_readers_updated()
                for _ in range(rng.randrange(1, 3)):  # two of the largest fit
                    socket.send(stream.message(number))
                    number += 1
    return number


def sleeper(endpoint: str) -> msgq.SubSocket:
    """Return a subscriber that only a wake-up wakes: the wait is so long that only a lost one reaches its end."""
    socket = subscriber(endpoint)
    socket.setTimeout(DEADLINE_MS // 2)
    return socket


def pause_randomly(rng: random.Random) -> None:
    """Let the other side go to sleep, to just the point where a message may slip through."""
    until = time.perf_counter_ns() + rng.randrange(20_000)
    while time.perf_counter_ns() < until:
        pass


def echo(ping: str, pong: str, seed: int, count: int) -> None:
    """Answer each message by another one; a time-out means that a wake-up was lost."""
    rng = random.Random(seed)
    with publisher(pong) as outgoing:
        say("ready")
        with sleeper(ping) as incoming:
            say("ready")
            for i in range(count):
                message = incoming.receive()
                assert message is not None, f"message {i} did not wake us"
                pause_randomly(rng)
                outgoing.send(message)


def bursts(endpoint: str, seed: int, count: int, sizes: list[int]) -> None:
    """Publish equal messages in bursts: so the ring often comes to rest where it was, one lap later."""
    rng, number = random.Random(seed), 0
    with publisher(endpoint) as socket:
        say("ready")
        hear()
        while number < count:
            for _ in range(rng.choice(sizes)):
                socket.send(number.to_bytes(8, "little"))
                number += 1
            socket.wait_for_readers(DEADLINE / 2, 0.00002)
        socket.send(LAST)


def scatter(endpoints: list[str], seed: int, count: int) -> dict[str, int]:
    """Publish on several topics in random order, never further ahead of the readers than one message each."""
    rng = random.Random(seed)
    sockets = {name: publisher(name) for name in endpoints}
    sent = dict.fromkeys(endpoints, 0)
    say("ready")
    hear()
    for _ in range(count):
        name = rng.choice(endpoints)
        sockets[name].wait_for_readers(DEADLINE, 0.00005)
        sockets[name].send(sent[name].to_bytes(8, "little"))
        sent[name] += 1
    for socket in sockets.values():
        socket.close()
    return sent


def rows(endpoint: str, seed: int, seconds: float, words: int) -> int:
    """Publish arrays of equal messages: each row holds its number, multiplied by 1, 2, 3, ..."""
    import numpy as np

    rng, number = random.Random(seed), 0
    factors = np.arange(1, words + 1, dtype=np.uint64)
    with publisher(endpoint) as socket:
        say("ready")
        hear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            some = np.arange(number, number + rng.randrange(1, 300), dtype=np.uint64)
            number += socket.send_many(some[:, None] * factors)
    return number


def columns(endpoint: str, seed: int, words: int, passive: bool) -> dict[str, Any]:
    """Receive arrays of equal messages, as `rows` publishes them."""
    import numpy as np

    rng, factors = random.Random(seed), np.arange(1, words + 1, dtype=np.uint64)
    received, last, ending = 0, -1, False
    with subscriber(endpoint, passive=passive) as socket:
        say("ready")
        while True:
            before = received + (socket.lost or 0)
            got = socket.receive_array(np.dtype((np.void, 8 * words)), rng.choice((None, 5, 1000)), wait_for_one=True)
            table = got.view(np.uint64).reshape(-1, words)
            numbers = table[:, 0].astype(np.int64)
            assert (table == table[:, :1] * factors).all(), "torn"
            assert (np.diff(numbers, prepend=last) > 0).all(), "repeated, or out of order"
            received += len(got)
            if len(got):
                last = int(numbers[-1])
                assert socket.lost is not None
                assert before <= int(numbers[0])
                assert last <= received + socket.lost - 1
            elif ending:
                return {"received": received, "lost": socket.lost, "kind": "array"}
            ending = ending or (not len(got) and has_input())


def fork() -> int:
    """As os.fork. The child ends by itself, should its parent forget it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads are none of Python's
        pid = os.fork()
    if pid == 0:
        signal.alarm(int(CHILD_LIFETIME * max(LONGER, 1)))
    return pid


def forked(endpoint: str, seed: int, children: int, count: int) -> list[int]:
    """Subscribe, fork, and let everybody, forks of forks included, receive all that comes; return exit codes."""
    ledger, depth, pids = Ledger(Stream(seed, largest_message_size(1 << 20) // 64)), 0, []
    socket = subscriber(endpoint)
    socket.setTimeout(DEADLINE_MS)
    say("ready")
    for i in range(children):
        ledger.take([socket.receive() or b""], socket.lost)
        if pid := fork():
            pids.append(pid)
            continue
        depth, pids = depth + 1, []
        if i % 3:  # two of three fork no more
            break
    try:
        for messages in receive_rest(socket, count - ledger.received):
            ledger.take(messages, socket.lost)
        good = ledger.last == count - 1 and socket.lost == 0
        socket.close()
    except BaseException:
        traceback.print_exc()
        good = False
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if depth:
        os._exit(0 if good and not any(codes) else 1)
    return [0 if good else 1, *codes]


def receive_rest(socket: msgq.SubSocket, count: int) -> Iterator[list[bytes]]:
    """Yield `count` more messages, one by one."""
    for _ in range(count):
        message = socket.receive()
        assert message is not None, "timed out"
        yield [message]


def drowsy(endpoint: str) -> int:
    """Receive by sleeping until the last message of `bursts`; a time-out means that a wake-up was lost."""
    received, message = 0, b""
    with sleeper(endpoint) as socket:
        say("ready")
        while message != LAST:
            came = socket.receive()
            assert came is not None, f"slept on after {received} messages"
            message = came
            received += 1
    return received


def poll_many(endpoints: list[str], count: int) -> dict[str, int]:
    """Receive from several topics by one poller; the wait is so long that only a lost wake-up reaches it."""
    poller = msgq.Poller()
    names = {}
    for endpoint in endpoints:
        socket = subscriber(endpoint)
        poller.registerSocket(socket)
        names[id(socket)] = endpoint
    received = dict.fromkeys(endpoints, 0)
    say("ready")
    while sum(received.values()) < count:
        ready = poller.poll(DEADLINE_MS // 2)
        assert ready, f"nothing came: {received}"
        for socket in ready:
            message = socket.receive(non_blocking=True)
            assert message == received[names[id(socket)]].to_bytes(8, "little")
            received[names[id(socket)]] += 1
    return received

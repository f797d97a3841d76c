"""Sleeping and waking: every wait here has a long time-out, and none may reach it.

Work queues and vectors look again after a second, in case that a process dies between a message and its wake. So a
lost wake shows there as a late message.
"""

from __future__ import annotations

import asyncio
import random
import select
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import EndpointClosedError
from msgq.records import SeqlockVector
from msgq.workqueue import MessageQueue
from tests.stress.process_group import ProcessGroup, ring
from tests.stress.roles import subscriber
from tests.support import DEADLINE, DEADLINE_MS, LONGER, Task, hear, say

LATE_S = 0.7  # a woken process looks sooner; a forgotten one polls after 1 s
PAUSES = 2  # so often a busy machine may let a process wait; forgotten sleepers are more
LAST = b"\xff" * 8
NIGHT = pytest.mark.nightly


# ---- an answer to each message ----


class Kind(NamedTuple):
    """How numbers are sent and received."""

    create: Callable[[str], Any]
    open_sender: Callable[[str], Callable[[int], object]]
    open_receiver: Callable[[str], Any]
    receive: Callable[[Any, float], Any]
    numbers: Callable[[Any], list[int]]  # numbers of the received messages


def _write_vector(name: str) -> Callable[[int], object]:
    vector, number_of_writes = SeqlockVector(name), iter(range(1 << 40))

    def write(number: int) -> None:
        vector[next(number_of_writes) % len(vector)] = number

    return write


def _encode(send: Callable[[bytes], object]) -> Callable[[int], object]:
    return lambda number: send(number.to_bytes(8, "little"))


def _decode(data: bytes | None) -> list[int]:
    return [] if data is None else [int.from_bytes(data, "little")]


KINDS = {
    "topic": Kind(
        lambda name: msgq.sub_sock(name, segment_size=1024).close(),
        lambda name: _encode(msgq.pub_sock(name).send),
        msgq.sub_sock,
        lambda reader, timeout: reader.receive(timeout=timeout),
        _decode,
    ),
    "channel": Kind(
        lambda name: Channel(name).close(),
        lambda name: _encode(Channel(name).publisher().send),
        lambda name: Channel(name).subscriber(),
        lambda reader, timeout: reader.receive(timeout),
        _decode,
    ),
    "vector": Kind(
        lambda name: SeqlockVector(name, np.uint64, 3).close(),
        _write_vector,
        SeqlockVector,
        lambda reader, timeout: reader.receive(timeout),
        lambda changes: [] if changes is None else [int(row) for row in changes.rows],
    ),
    "queue": Kind(
        lambda name: MessageQueue(name, max_messages=4, max_message_size=8).close(),
        lambda name: _encode(MessageQueue(name).send),
        MessageQueue,
        lambda reader, timeout: reader.receive(timeout),
        lambda message: [] if message is None else _decode(message.data),
    ),
}
WAYS = ("call", "poller", "fileno", "asyncio")


def answer(kind: str, ping: list[str], pong: str, way: str, count: int) -> int:
    """Child: answer each number by the same number; a time-out means that a wake was lost."""
    how, rng = KINDS[kind], random.Random(len(ping))
    readers, send = [how.open_receiver(name) for name in ping], how.open_sender(pong)
    say("ready")
    answered = 0

    def send_all(got: Any) -> None:
        nonlocal answered
        for number in how.numbers(got):
            pause_randomly(rng)
            send(number)
            answered += 1

    if way == "asyncio":
        asyncio.run(_answer_tasks(readers, send_all, lambda: answered >= count))
    wait = _waiter(how, readers, way)
    while answered < count:
        got = wait()
        assert got, f"slept on after {answered} messages"
        for one in got:
            send_all(one)
    return answered


def _waiter(how: Kind, readers: list[Any], way: str) -> Callable[[], list[Any]]:
    """Return a function that waits for messages of some readers, and takes one from each."""
    if way == "call":
        return lambda: [how.receive(readers[0], DEADLINE / 2)]
    poller = msgq.Poller()
    for reader in readers:
        poller.registerSocket(reader)

    def wait() -> list[Any]:
        ready = poller.poll(DEADLINE_MS // 2) if way == "poller" else select.select(readers, [], [], DEADLINE / 2)[0]
        return [how.receive(reader, 0) for reader in ready]

    return wait


async def _answer_tasks(readers: list[Any], send: Callable[[Any], None], is_over: Callable[[], bool]) -> None:
    """Answer by coroutines, one for each reader."""

    async def follow(reader: Any) -> None:
        while not is_over():
            send(await reader.areceive())

    tasks = [asyncio.create_task(follow(reader)) for reader in readers]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


def pause_randomly(rng: random.Random) -> None:
    """Let the other side go to sleep, to just the point where a message may slip through."""
    until = time.perf_counter_ns() + rng.randrange(20_000)
    while time.perf_counter_ns() < until:
        pass


@pytest.mark.parametrize(
    ("endpoints", "rounds"), [(1, 100), pytest.param(1, 20_000, marks=NIGHT), pytest.param(20, 2000, marks=NIGHT)]
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_sleeping_reader_answers_each_message(
    scene: ProcessGroup, endpoint: str, prefix: str, seed: int, kind: str, way: str, endpoints: int, rounds: int
) -> None:
    """What: two processes answer each other, after random pauses of the length that going to sleep takes.

    Why: the writer stores its message and loads the sleepers, the sleeper does it the other way round. One sleep covers
    many words, and a message may come on one endpoint while another is looked at.

    Failure would mean: a message came between a reader's last look and its sleep, and nobody woke it.
    """
    if way == "call" and endpoints > 1:
        pytest.skip("a call waits for one endpoint")
    rng, rounds, how, late = random.Random(seed), int(rounds * LONGER), KINDS[kind], 0
    names, pong = [f"{endpoint}-{i}" for i in range(endpoints)], f"{endpoint}-pong"
    for name in (*names, pong):
        how.create(name)
    answers, senders = how.open_receiver(pong), [how.open_sender(name) for name in names]
    child = scene.start(answer, kind, names, pong, way, rounds)
    for number in range(1, rounds + 1):
        pause_randomly(rng)
        start = time.monotonic()
        rng.choice(senders)(number)
        got = how.numbers(how.receive(answers, DEADLINE / 2))
        assert got == [number], f"round {number}"
        late += time.monotonic() - start > LATE_S
    assert child.result() == rounds
    assert late <= PAUSES, "somebody slept beside a message"


# ---- the ring ----


def bursts(endpoint: str, seed: int, count: int, sizes: list[int]) -> None:
    """Child: publish equal messages in bursts: so the ring often comes to rest where it was, one lap later."""
    rng, number = random.Random(seed), 0
    with msgq.pub_sock(endpoint) as socket:
        say("ready")
        hear()
        while number < count:
            for _ in range(rng.choice(sizes)):
                socket.send(number.to_bytes(8, "little"))
                number += 1
            socket.wait_for_readers(DEADLINE / 2, 0.00002)
        socket.send(LAST)


def drowsy(endpoint: str) -> int:
    """Child: receive by sleeping until the last message of `bursts`; a time-out means that a wake was lost."""
    received, message = 0, b""
    with subscriber(endpoint) as socket:
        socket.setTimeout(DEADLINE_MS // 2)
        say("ready")
        while message != LAST:
            came = socket.receive()
            assert came is not None, f"slept on after {received} messages"
            message = came
            received += 1
    return received


@pytest.mark.parametrize("readers", [1, pytest.param(6, marks=NIGHT)])
def test_bursts_of_exactly_one_ring_lap_miss_no_wakeup(
    scene: ProcessGroup, endpoint: str, seed: int, readers: int
) -> None:
    """What: bursts of exactly one or two laps of a tiny ring, each awaited by blocking receives.

    Why: the offset of write_pointer is the same again after a lap.

    Failure would mean: one that was delayed between its last look and its sleep took a full ring for an empty one, and
    sleeps on although messages are there.
    """
    with ring(endpoint, 128):  # seven messages of 8 bytes to a lap
        source = scene.start(bursts, endpoint, seed, int(10_000 * LONGER), [1, 7, 7, 14])
        sleepers = scene.start_all([(drowsy, endpoint)] * readers)
        source.say("go")
        source.result()
        for sleeper in sleepers:
            assert sleeper.result() > 0


def test_socket_close_wakes_waiting_thread(endpoint: str) -> None:
    """What: threads wait for ever on sockets that another thread closes, 300 times.

    Why: close must end the sleep and may not free what the sleeper still looks at.

    Failure would mean: a thread that cannot be ended, or a crash.
    """
    with ring(endpoint, 1024):
        for _ in range(int(300 * LONGER)):
            socket = subscriber(endpoint)
            socket.setTimeout(DEADLINE_MS)
            waiting = Task(socket.receive)
            waiting.wait_asleep()
            socket.close()
            with pytest.raises(EndpointClosedError):
                waiting.result()

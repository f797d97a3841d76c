"""Many sockets in many threads of one process."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import msgq
from tests.stress.process_group import ring
from tests.stress.roles import publisher, subscriber
from tests.stress.traffic import Ledger, Stream, largest_message_size
from tests.support import DEADLINE_MS, LONGER, Task

RING = 1 << 16


@pytest.mark.nightly
def test_sockets_in_separate_threads_deliver_all_messages(seed: int, prefix: str) -> None:
    """What: four topics, each with a publisher and four subscribers, every socket in a thread of its own; beside them
    threads that open and close sockets, and one that reads statistics.

    Why: helper thread, fork generation, the set of open sockets and the GIL are shared by all sockets of a process.

    Failure would mean: a deadlock with the GIL, or sockets of one process that disturb each other.
    """
    over = threading.Event()

    def publish(topic: str) -> int:
        stream, number = Stream(seed, largest_message_size(RING)), 0
        until = time.monotonic() + LONGER
        with publisher(topic) as socket:
            while time.monotonic() < until:
                socket.send(stream.message(number))
                number += 1
        return number

    def receive(topic: str, ready: threading.Barrier) -> int:
        stream = Stream(seed, largest_message_size(RING))
        with subscriber(topic) as socket:
            ledger = Ledger(stream)
            ready.wait(30)
            while (message := socket.receive()) is not None or not over.is_set():
                ledger.take([] if message is None else [message], socket.lost)
            return ledger.received + (socket.lost or 0)

    def disturb(number: int) -> int:
        rng, times = random.Random(seed + number), 0
        while not over.is_set():
            with subscriber(rng.choice(topics)) as socket:
                socket.setTimeout(rng.randrange(3))
                socket.receive()
            times += len(msgq.stats.topics()) > 0
        return times

    topics = [f"t{i}" for i in range(4)]
    for topic in topics:
        with ring(topic, RING):
            pass
    ready = threading.Barrier(17)
    with ThreadPoolExecutor(24) as pool:
        readers = {topic: [pool.submit(receive, topic, ready) for _ in range(4)] for topic in topics}
        ready.wait(30)
        others = [pool.submit(disturb, i) for i in range(3)]
        published = {topic: pool.submit(publish, topic) for topic in topics}
        sums = {topic: future.result(60 * max(LONGER, 1)) for topic, future in published.items()}
        over.set()
        for topic in topics:
            assert [future.result(60) for future in readers[topic]] == [sums[topic]] * 4
        assert min(future.result(60) for future in others) > 0


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
            with pytest.raises(msgq.errors.EndpointClosedError):
                waiting.result()

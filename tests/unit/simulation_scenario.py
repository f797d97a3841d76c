"""Scenarios with each kind of endpoint, each kind of node and all faults, and digests of them. Other processes and
other versions of Python run them, too.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

import msgq
import visionipc
from msgq.errors import KeyTakenError, QueueFullError
from msgq.simulation import Fault, Faults, Simulation

FAULTS = Faults(drop=0.05, delay=0.2, duplicate=0.05, reorder=0.1, lap=0.02, restart=0.02, delay_max=0.3)
SCRIPT = [Fault("drop", "left", message=3), Fault("delay", "right", at=1.0, delay=0.5)]
END = 6.0  # seconds of virtual time

#: Writes down what a node has received, and what it has lost.
Log = Callable[..., None]


def topics(sim: Simulation, log: Log) -> None:
    """A node adds the numbers of two recorded topics, another one samples the sums, and functions repeat them."""

    def adder() -> None:
        poller = msgq.Poller()
        for name in ("left", "right"):
            msgq.sub_sock(name, poller)
        pub, total = msgq.pub_sock("sum"), 0
        while True:
            for sub in poller.poll(400):
                total += struct.unpack("<q", sub.receive() or b"")[0]
                pub.send(struct.pack("<qq", total, sub.lost or 0))

    def sampler() -> Generator[Any, Any, None]:
        sub = msgq.SubSocket()
        sub.connect(msgq.context, "sum", conflate=True)
        pub = msgq.pub_sock("sample")
        for _ in range(20):
            yield 0.25
            pub.send(sub.receive(True) or b"none")
            log("sampler", sub.lost)

    def burst() -> Generator[Any, Any, None]:
        pub = msgq.pub_sock("burst", segment_size=1024)  # the reader is lapped
        for number in range(6):
            yield 0.5
            pub.send_many([bytes([number, each]) * 30 for each in range(5 * number)])

    def slow_reader() -> Generator[Any, Any, None]:
        sub = msgq.sub_sock("burst")
        while True:
            yield 0.2
            log("slow_reader", sub.receive_many(), sub.lost)

    repeated = msgq.pub_sock("repeated")
    for node in (adder, sampler, burst, slow_reader):
        sim.add(node)
    sim.on("sample", lambda message: repeated.send(b"sample " + message))
    sim.on("left", lambda message: repeated.send(b"left " + message))
    for k, name in enumerate(("left", "right")):
        sim.play((0.1 * i, name, struct.pack("<q", 10 * i + k)) for i in range(50))


def channels(sim: Simulation, log: Log) -> None:
    """Three nodes publish on one channel; one subscriber is slow, one conflates, one holds views."""

    def talker(number: int) -> Generator[Any, Any, None]:
        node = msgq.Node(f"talker{number}")
        pub, sub = node.advertise("talk", capacity=8, slots=12), node.subscribe("talk", own=False)
        for count in range(30):
            yield 0.1 * number
            pub.send(bytes([number, count]))
            log(node.name, sub.receive_many(), sub.lost)

    def reader(period: float, conflate: bool) -> None:
        sub = msgq.Channel("talk").subscriber(conflate=conflate, max_views=8)
        while True:
            sim.clock.sleep(period)
            views = [sub.receive_view(0.1) for _ in range(3)]
            log("reader", [view and (bytes(view), view.publisher.name) for view in views], sub.lost, sub.received)

    for number in (1, 2, 3):
        sim.add(talker, number)
    sim.add(reader, 0.9, False)
    sim.add(reader, 0.3, True)


def queues(sim: Simulation, log: Log) -> None:
    """Two producers and three workers, which fail at times, and a lease that ends."""

    def producer(number: int) -> Generator[Any, Any, None]:
        with msgq.MessageQueue("jobs", max_messages=10) as queue:
            for count in range(30):
                yield 0.05
                try:
                    queue.send(bytes([number, count]), count % 3, timeout=0, delay=0.2 * (count % 4 == 3))
                except QueueFullError:
                    log(f"producer {number}", "full", count)

    def worker(period: float) -> None:
        queue = msgq.MessageQueue("jobs", max_messages=10)
        while True:
            job = queue.take(timeout=1.0, lease=0.5)
            log(f"worker {period}", job and (job.data, job.priority, job.deliveries))
            sim.clock.sleep(period)
            if job is not None and period < 0.5:
                job.nack(0.1) if job.data[1] % 5 == job.deliveries else job.ack()

    for number in (1, 2):
        sim.add(producer, number)
    for period in (0.1, 0.2, 0.7):
        sim.add(worker, period)


def records(sim: Simulation, log: Log) -> None:
    """Two nodes write a vector, one writes a board, and two look at the changes."""

    def writer(number: int) -> Generator[Any, Any, None]:
        vector = msgq.SeqlockVector("numbers", "i8", 6)
        for count in range(20):
            yield 0.07 * number
            vector[[count % 6, number]] = 100 * number + count

    def owner() -> Generator[Any, Any, None]:
        with msgq.Board("state", 4, 16) as board:
            for count in range(12):
                yield 0.3
                try:
                    with board.declare("ab"[count % 2]) as entry:
                        entry.write(bytes([count]))
                except KeyTakenError:
                    log("owner", "taken")

    def reader() -> None:
        vector = msgq.SeqlockVector("numbers", "i8", 6)
        while True:
            found = vector.receive(timeout=0.5)
            log("reader", found and (found.indices.tolist(), found.rows.tolist(), found.times.tolist()))

    def look(found: Any) -> None:
        log("look", [(key, value.data, value.count, value.time) for key, value in found.items()])

    msgq.Board("state", 4, 16)
    for number in (1, 2):
        sim.add(writer, number)
    for node in (owner, reader):
        sim.add(node)
    sim.on("records/state", look)


def frames(sim: Simulation, log: Log) -> None:
    """A camera, and a client that gets its frames late."""

    def camera() -> None:
        with visionipc.VisionIpcServer("cam") as server:
            server.create_buffers(1, 4, 2, 2, visionipc.FrameFormat.RGB24)
            server.start_listener()
            for count in range(20):
                sim.clock.sleep(0.1)
                pixels: Any = np.full((2, 2, 3), count, np.uint8)
                server.send(1, pixels, count)

    def watcher() -> None:
        client = visionipc.VisionIpcClient("cam", 1, False)
        client.connect(True)
        while True:
            sim.clock.sleep(0.15)
            frame = client.recv(500)
            log("watcher", frame and (frame.frame_id, bytes(frame.data)), client.lost)

    sim.add(camera)
    sim.add(watcher)


SCENARIOS: dict[str, tuple[Callable[[Simulation, Log], None], ...]] = {
    scenario.__name__: (scenario,) for scenario in (topics, channels, queues, records, frames)
}
SCENARIOS["mixed"] = (topics, channels, queues, records, frames)


def run(name: str, seed: int, faults: Faults) -> tuple[Simulation, list[Any]]:
    """Return a simulation that has run, and what its nodes have received."""
    received: list[Any] = []
    with Simulation(seed, faults, SCRIPT) as sim:
        for scenario in SCENARIOS[name]:
            scenario(sim, lambda *values: received.append((sim.clock.now_ns, *values)))
        sim.run(until=END)
    return sim, received


def digest(name: str, seed: int, faults: Faults = FAULTS) -> str:
    """Return a digest of all that was sent and received: when, by whom, where, what, and what was lost."""
    sim, received = run(name, seed, faults)
    sent = [
        (message.time_ns, message.node, message.endpoint, message.publisher, message.key, message.data.hex())
        for message in sim.sent_messages
    ]
    return hashlib.sha256("\n".join(map(repr, sent + received)).encode()).hexdigest()


def noisy_digests(seed: int) -> dict[str, str]:
    """Return the digests of all scenarios, while other threads compete for the interpreter."""
    over = threading.Event()

    def make_noise() -> None:
        while not over.wait(0.0001):
            sum(range(1000))

    noise = [threading.Thread(target=make_noise) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in noise:
        thread.start()
    try:
        return {name: digest(name, seed) for name in SCENARIOS}
    finally:
        over.set()
        for thread in noise:
            thread.join()
        sys.setswitchinterval(interval)

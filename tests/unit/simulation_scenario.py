"""A scenario with every kind of node and fault, and a digest of all that it sends; run in fresh processes, too."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Generator
from typing import Any

import msgq
from msgq.simulation import Fault, Faults, Simulation

FAULTS = Faults(drop=0.05, delay=0.2, duplicate=0.05, reorder=0.1, lap=0.02, restart=0.02, delay_max=0.3)
SCRIPT = [Fault("drop", "left", message=3), Fault("delay", "right", at=1.0, delay=0.5)]


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


def run(seed: int) -> Simulation:
    """Return a simulation that has run."""
    with Simulation(seed, FAULTS, SCRIPT) as sim:
        log = msgq.pub_sock("log")
        sim.add(adder)
        sim.add(sampler)
        sim.on("sample", lambda message: log.send(b"sample " + message))
        sim.on("left", lambda message: log.send(b"left " + message))
        for k, name in enumerate(("left", "right")):
            sim.play((0.1 * i, name, struct.pack("<q", 10 * i + k)) for i in range(50))
        sim.run(until=6)
    return sim


def digest(seed: int) -> str:
    """Return a digest of all that was sent: when, by whom, where, what."""
    messages = run(seed).sent_messages
    text = "".join(
        f"{message.time_ns} {message.node} {message.endpoint} {message.data.hex()}\n" for message in messages
    )
    return hashlib.sha256(text.encode()).hexdigest()

"""Processes with stages that get late, each for another reason."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import msgq
from msgq.impl.base import clock
from msgq.recording import Recorder
from tests.support import Child, hear, repeating, say, wait_until

HEALTHY_MESSAGES, LATE_MESSAGES = 150, 60
PERIOD_S, LATE_PERIOD_S = 0.01, 0.04
WORK_S, LONG_WORK_S, CROWDED_WORK_S = 0.0003, 0.03, 0.005
SENDER_DELAY_NS = 100_000_000


def run_stage(name: str) -> tuple[int, int]:
    """Handle messages that say how long to work. Return how long the thread ran and had no processor in its trouble."""
    before = _read_times()
    with msgq.sub_sock(name) as messages, msgq.StageTracer(name) as tracer:
        say("up")
        for message in tracer.trace_messages(messages):
            order = json.loads(message.data)
            if order.get("core") is not None:
                os.sched_setaffinity(0, {order["core"]})
                os.nice(10)  # a tenth of the other thread's weight, which is less than the work needs
            if order.get("begins"):
                before = _read_times()
            _work(order["work_s"])
            if order.get("ends"):
                break
    ran_ns, waited_ns = (after - first for after, first in zip(_read_times(), before, strict=True))
    return ran_ns, waited_ns


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def _read_times() -> tuple[int, int]:
    ran, waited, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    return int(ran), int(waited)


def run_camera(core: int) -> None:
    """Keep a processor busy with a thread named "converter", from one word of the parent to the next."""
    over = threading.Event()

    def convert() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("converter")
        os.sched_setaffinity(0, {core})
        while not over.is_set():
            pass

    with msgq.pub_sock("camera") as pictures:
        pictures.send(b"a picture")
        say("up")
        hear()
        converter = threading.Thread(target=convert)
        converter.start()
        say("busy")
        hear()
        over.set()
        converter.join()


class Sender:
    """Sends messages with orders to a stage."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.topic = msgq.pub_sock(stage, tracked=True)
        self.child = Child(run_stage, stage)
        self.count = 0

    def start(self) -> None:
        assert self.child.hear() == "up"
        self.topic.wait_for_readers(1)

    def send(self, delay_ns: int = 0, work_s: float = WORK_S, **order: object) -> None:
        self.topic.send(json.dumps({"work_s": work_s, **order}).encode(), origin_time=clock.time_ns() - delay_ns)
        self.count += 1

    def send_many(self, count: int, period_s: float, delay_ns: int = 0, work_s: float = WORK_S) -> None:
        until = self.count + count
        with repeating(lambda: self.send(delay_ns, work_s), period_s):
            wait_until(lambda: self.count >= until)

    def end(self) -> tuple[int, int]:
        self.send(ends=True)
        ran_ns, waited_ns = self.child.result()
        return ran_ns, waited_ns


def record_troubles(path: Path) -> dict[str, tuple[int, int]]:
    """Record a healthy time and then a trouble of each stage; return how long each ran and waited in its trouble."""
    core = min(os.sched_getaffinity(0))
    senders = {name: Sender(name) for name in ("crowded", "busy", "frozen", "waiting")}
    camera = Child(run_camera, core)
    try:
        for sender in senders.values():
            sender.start()
        assert camera.hear() == "up"
        with Recorder(path):
            for sender in senders.values():
                sender.send_many(HEALTHY_MESSAGES, PERIOD_S)
            times = {"crowded": _crowd(senders["crowded"], camera, core)}
            senders["busy"].send(begins=True)
            senders["busy"].send_many(LATE_MESSAGES, LATE_PERIOD_S, work_s=LONG_WORK_S)
            senders["frozen"].child.kill(signal.SIGSTOP)
            senders["frozen"].send_many(LATE_MESSAGES, LATE_PERIOD_S)
            senders["frozen"].child.kill(signal.SIGCONT)
            senders["waiting"].send_many(LATE_MESSAGES, LATE_PERIOD_S, delay_ns=SENDER_DELAY_NS)
            return times | {name: sender.end() for name, sender in senders.items() if name not in times}
    finally:
        for sender in senders.values():
            sender.topic.close()
            sender.child.__exit__()
        camera.__exit__()


def _crowd(sender: Sender, camera: Child, core: int) -> tuple[int, int]:
    """Let a busy thread share the processor with a stage, until the stage has handled all its messages."""
    camera.say()
    assert camera.hear() == "busy"
    sender.send(core=core, begins=True)
    sender.send_many(LATE_MESSAGES, LATE_PERIOD_S, work_s=CROWDED_WORK_S)
    times = sender.end()
    camera.say()
    camera.result()
    return times

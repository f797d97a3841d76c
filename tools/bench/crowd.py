"""What the measured processes do where there are many of them; see `roles`."""

import os
import random
import signal
import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from tools.bench import control
from tools.bench.adapters import adapter
from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.machine import read_wait_ns
from tools.bench.roles import Role

BURST_GAP_NS = 10_000
FLOOD = 20_000  # messages
OVER = (1 << 64) - 1
LOOK_S = 0.0002
KILL_WITHIN_S = 0.003
# A longest send counts only if its process did not wait for its core. Otherwise the time includes another program.
UNDISTURBED_NS = 20_000


# ---------------------------------------------------------------------------------------------------------------- burst


def burst_send(job: Job) -> Role:
    """Publish at a steady rate. After a delay, the intervals stay the same, so that delays cause no burst."""
    pub = job.system_for("data").publisher()
    yield None
    pub.await_subscribers(job.subscribers)
    loop, words = compile_loop("paced", job.message, send=pub.wake or pub.send), control.words(job.words_path)
    while True:
        count = int(job.seconds * 1e9 / BURST_GAP_NS)
        loop(count, BURST_GAP_NS)
        words[control.TOTAL] = count
        yield {"sent": count}


def flood_send(job: Job) -> Role:
    """Publish as fast as can be."""
    pub = job.system_for("data").publisher()
    yield None
    pub.await_subscribers(job.subscribers)
    loop, words = compile_loop("send", job.message, send=pub.wake or pub.send), control.words(job.words_path)
    while True:
        began = perf_counter_ns()
        loop(FLOOD)
        took = perf_counter_ns() - began
        words[control.TOTAL] = FLOOD
        yield {"sent": FLOOD, "took_ns": took}


def burst_take(job: Job) -> Role:
    """Take what comes, asleep until it does; the runner counts."""
    sub = job.system_for("data").subscriber()
    if sub.wait is None:
        raise Unsupported("no way to wait for a while")
    loop, words = compile_loop("count", job.message, take=sub.wait), control.words(job.words_path)
    yield None
    while True:
        yield {"received": loop(words)}


def load(job: Job) -> Role:
    """Keep a core busy until the end."""
    words = control.words(job.words_path)
    yield None
    while True:
        while not words[control.TOTAL]:
            pass
        yield {}


# ----------------------------------------------------------------------------------------------------------------- kill
# The control words: how many victims were asked for, or that it is over; and the pid of the one that publishes now.


def after_kill(job: Job) -> Role:
    """Kill another publisher at any time, and publish: the longest send of as many as the topic keeps, twice."""
    if 2 not in adapter(job.system).writers:
        raise Unsupported("one publisher only")
    system = job.system_for("data")
    pub, held = system.publisher(), system.subscriber()
    words, chance = control.words(job.words_path), random.Random(0)
    longest, count, asked = compile_loop("longest", job.message, send=pub.send), 2 * job.depth + 2, 0
    yield None
    while True:
        end_at = perf_counter_ns() + int(job.seconds * 1e9)
        took: list[int] = []
        asked = 0
        while perf_counter_ns() < end_at or not took:
            asked += 1
            words[control.TOTAL] = asked
            _await(lambda: words[control.RECEIVED] != 0)
            time.sleep(chance.uniform(0, KILL_WITHIN_S))
            os.kill(words[control.RECEIVED], signal.SIGKILL)
            _await(lambda: words[control.RECEIVED] == 0)
            before = read_wait_ns()
            worst = longest(count)
            if read_wait_ns() - before < UNDISTURBED_NS:
                took.append(worst)
        words[control.TOTAL] = OVER
        yield {"value": max(took), "samples": took, "held": held is not None}


def be_killed(job: Job) -> Role:
    """Start a process that publishes whenever one is asked for. Nothing of the system is loaded here."""
    words = control.words(job.words_path)
    yield None
    while True:
        started = 0
        while words[control.TOTAL] != OVER:
            if words[control.TOTAL] == started:
                time.sleep(LOOK_S)
                continue
            started += 1
            pid = os.fork()
            if not pid:
                _publish_for_ever(job, words)
            os.waitpid(pid, 0)
            words[control.RECEIVED] = 0
        yield {"killed": started}


def _publish_for_ever(job: Job, words: memoryview) -> None:
    """Be the victim: publish, say so, and go on."""
    parent = os.getppid()
    try:
        pub = job.system_for("data").publisher()
        loop = compile_loop("send", job.message, send=pub.send)
        loop(1)
        words[control.RECEIVED] = os.getpid()
        while os.getppid() == parent:
            loop(1000)
    finally:
        os._exit(1)


def _await(happened: Callable[[], Any]) -> None:
    """Wait for the other side; the process's own limit ends it when that has failed."""
    while not happened():
        time.sleep(LOOK_S)


ROLES: dict[str, Callable[[Job], Role]] = {
    role.__name__: role for role in (burst_send, flood_send, burst_take, load, after_kill, be_killed)
}

"""Roles of many processes: bursts, killed publishers, workers of a queue, and processes that watch; see `roles`."""

import os
import random
import signal
import time
from collections.abc import Callable

from tools.bench import control
from tools.bench.adapters import adapter
from tools.bench.adapters.base import Call, Publisher, Unsupported, WorkQueue
from tools.bench.alone import VALUE
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.machine import read_wait_ns
from tools.bench.roles import (
    Result,
    Role,
    elapsed_ns,
    in_slices,
    open_publisher,
    open_subscriber,
    phases,
    require,
    sample,
)

BURST_GAP_NS = 10_000
FLOOD = 20_000  # messages
OVER = (1 << 64) - 1
KILL_WITHIN_S = 0.003
# A longest send counts only if its process did not wait for its core. Otherwise the time includes another program.
UNDISTURBED_NS = 20_000
GLANCE_S = 0.001
WATCH_GAP_NS = 250


# ---------------------------------------------------------------------------------------------------------------- burst


def burst_send(job: Job) -> Role:
    """Publish at a steady rate. After a delay, the intervals stay the same, so that delays cause no burst."""
    pub = open_publisher(job)
    return _publishes(job, pub, pub.wake or pub.send, "paced", int(job.case.seconds * 1e9 / BURST_GAP_NS), BURST_GAP_NS)


def flood_send(job: Job) -> Role:
    """Publish as fast as can be."""
    pub = open_publisher(job)
    return _publishes(job, pub, pub.wake or pub.send, "send", FLOOD)


def flood_send_patiently(job: Job) -> Role:
    """Publish as fast as subscribers receive, if the system can wait for them."""
    pub = open_publisher(job)
    return _publishes(job, pub, pub.patient or pub.wake or pub.send, "send", FLOOD)


def _publishes(job: Job, pub: Publisher, send: Call, name: str, *arguments: int) -> Role:
    loop = compile_loop(name, job.message, send=send)

    def once(words: memoryview) -> Result:
        took = elapsed_ns(loop, *arguments)
        words[control.TOTAL] = arguments[0]
        return {"sent": arguments[0], "took_ns": took}

    return in_slices(job, once, pub)


def burst_take(job: Job) -> Role:
    """Take what comes, asleep until it does; the runner counts."""
    take = require(open_subscriber(job).wait, "no way to wait for a while")
    loop = compile_loop("count", job.message, take=take)
    return in_slices(job, lambda words: {"received": loop(words)})


def load(job: Job) -> Role:
    """Keep a core busy until the end."""
    return _until_end(job, lambda: None)


# ------------------------------------------------------------------------------------------------------------- watching


def watch(job: Job) -> Role:
    """Read the value of others all the time, at one pace in all systems: a fast reader hurts its writer more."""
    loop = compile_loop("paced", None, send=job.system_for(VALUE).reading())
    return _until_end(job, lambda: loop(100, WATCH_GAP_NS))


def glance(job: Job) -> Role:
    """Read it now and then, and leave the core to those who are measured there."""
    loop = compile_loop("send", None, send=job.system_for(VALUE).reading())

    def once() -> None:
        loop(1)
        time.sleep(GLANCE_S)

    return _until_end(job, once)


def _until_end(job: Job, once: Callable[[], None]) -> Role:
    def repeat(words: memoryview) -> None:
        while not words[control.TOTAL]:
            once()

    return in_slices(job, repeat)


# ----------------------------------------------------------------------------------------------------------------- kill
# The control words: how many victims were asked for, or that it is over; and the pid of the one that publishes now.


def after_kill(job: Job) -> Role:
    """Kill another publisher at any time, and publish: the longest send of as many as the topic keeps, twice."""
    if 2 not in adapter(job.system).writers:
        raise Unsupported("one publisher only")
    pub, held = open_publisher(job), open_subscriber(job)
    chance = random.Random(0)
    longest, count = compile_loop("longest", job.message, send=pub.send), 2 * job.case.depth + 2

    def once(words: memoryview) -> int:
        while True:
            words[control.TOTAL] += 1
            control.wait_until(lambda: words[control.RECEIVED] != 0)
            time.sleep(chance.uniform(0, KILL_WITHIN_S))
            os.kill(words[control.RECEIVED], signal.SIGKILL)
            control.wait_until(lambda: words[control.RECEIVED] == 0)
            before = read_wait_ns()
            worst: int = longest(count)
            if read_wait_ns() - before < UNDISTURBED_NS:
                return worst

    def kill(words: memoryview) -> Result:
        took = sample(job.case.seconds, lambda: once(words))
        words[control.TOTAL] = OVER
        return {"value": max(took), "samples": took, "held": held is not None}

    return in_slices(job, kill)


def be_killed(job: Job) -> Role:
    """Start a process that publishes whenever one is asked for. Nothing of the system is loaded here."""

    def once(words: memoryview) -> Result:
        started = 0
        while words[control.TOTAL] != OVER:
            if words[control.TOTAL] == started:
                time.sleep(control.LOOK_S)
                continue
            started += 1
            pid = os.fork()
            if not pid:
                _publish_for_ever(job, words)
            os.waitpid(pid, 0)
            words[control.RECEIVED] = 0
        return {"killed": started}

    return in_slices(job, once)


def _publish_for_ever(job: Job, words: memoryview) -> None:
    """Be the victim: publish, say so, and go on."""
    parent = os.getppid()
    try:
        loop = compile_loop("send", job.message, send=open_publisher(job).send)
        loop(1)
        words[control.RECEIVED] = os.getpid()
        while os.getppid() == parent:
            loop(1000)
    finally:
        os._exit(1)


# ------------------------------------------------------------------------------------------------ senders and workers
# Each process has its own word. 0: the process is busy. Otherwise: the number of its messages plus 1.


def crowd_lead(job: Job) -> Role:
    """Send. After the last message of all senders, end the workers, and receive the remaining messages."""
    queue = share_queue(job)
    loop = compile_loop("until", job.message, send=queue.send)
    end_workers, receive = (compile_loop("send", b"", send=call) for call in (queue.send, queue.receive))
    senders, workers = (range(3), range(3, 7))

    def once(words: memoryview) -> Result:
        rate, sent = loop(job.case.batch, *phases(job.case.seconds))
        sent += _sum(words, senders)
        end_workers(len(workers))
        receive(sent - _sum(words, workers))
        return {"value": rate}

    return in_slices(job, once)


def crowd_send(job: Job) -> Role:
    """Send for as long as the others do."""
    loop = compile_loop("until", job.message, send=share_queue(job).send)

    def once(words: memoryview) -> Result:
        rate, sent = loop(job.case.batch, *phases(job.case.seconds))
        words[control.OWN + job.number] = sent + 1
        return {"rate": rate}

    return in_slices(job, once)


def crowd_take(job: Job) -> Role:
    """Receive until the leader sends the end."""
    queue = share_queue(job)
    loop = compile_loop("work", queue.end, take=queue.receive)

    def once(words: memoryview) -> Result:
        received = loop()
        words[control.OWN + job.number] = received + 1
        return {"received": received}

    return in_slices(job, once)


def share_queue(job: Job) -> WorkQueue:
    """Open a queue with several senders and receivers."""
    queue = job.system_for("data").queue()
    require(queue.shared or None, "one sender and one receiver only")
    return queue


def _sum(words: memoryview, numbers: range) -> int:
    """Wait until these have ended, and return their sum."""
    places = [control.OWN + number for number in numbers]
    control.wait_until(lambda: all(words[place] for place in places))
    return sum(words[place] - 1 for place in places)

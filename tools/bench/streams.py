"""Roles of two processes: streams, ping-pong, and a subscriber that sleeps; see `roles`."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from tools.bench import control, numbers
from tools.bench.adapters import adapter
from tools.bench.adapters.base import Call, Publisher, Subscriber, Unsupported
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.roles import Result, Role, in_slices, latency, open_publisher, open_subscriber, phases, require

SLEEP_BEFORE_PING_S = 0.002
SLEEP_BEFORE_FRAME_S = 0.01
FIRE_GAP_NS = 20_000


# -------------------------------------------------------------------------------------------------------------- streams


def stream_send(job: Job) -> Role:
    """Publish one by one, so that nothing is lost."""
    pub = open_publisher(job)
    call = pub.in_place if job.case.in_place and pub.in_place else pub.stream or pub.send
    return _sends(job, call, pub, credits_needed=not adapter(job.system).lossless)


def stream_wake(job: Job) -> Role:
    """Publish one by one to a receiver that may be asleep."""
    pub = open_publisher(job)
    return _sends(job, pub.wake or pub.send, pub)


def queue_send(job: Job) -> Role:
    """Send one by one, waiting for room."""
    return _sends(job, job.system_for("data").queue(receives=False).send, credits_needed=False)


def batch_send(job: Job) -> Role:
    """Publish a whole array of messages with each call."""
    import numpy as np

    pub, case = open_publisher(job), job.case
    many = require(pub.many, "no call for many messages")
    block = np.frombuffer(job.message * case.batch, np.uint8).reshape(case.batch, case.size)
    return _sends(job, many, pub, message=pub.rows(block), calls=1)


def _sends(
    job: Job,
    call: Call,
    pub: Publisher | None = None,
    *,
    message: Any = None,
    calls: int | None = None,
    credits_needed: bool = True,
) -> Role:
    """Be the sending side of a stream. `calls`: of a batch; None: a call for each message."""
    case = job.case
    loop = compile_loop("stream_send", job.message if message is None else message, send=call)
    room = case.depth - case.batch if credits_needed else 1 << 62

    def once(words: memoryview) -> Result:
        count, took = loop(words, case.batch, calls or case.batch, room, *phases(case.seconds))
        return {"value": count / took * 1e9}

    return in_slices(job, once, pub)


def stream_take(job: Job) -> Role:
    """Take one by one until the publisher has sent its last."""
    sub = open_subscriber(job)
    call = sub.in_place if job.case.in_place else sub.stream or sub.poll
    return _takes(job, require(call, "no way to take a message in place"), sub.lost)


def stream_block(job: Job) -> Role:
    """Take one by one; sleep while nothing is there."""
    sub = open_subscriber(job)
    return _takes(job, sub.block, sub.lost)


def queue_take(job: Job) -> Role:
    """Receive one by one, asleep when there is nothing."""
    return _takes(job, job.system_for("data").queue(sends=False).receive, lambda: None)


def _takes(job: Job, call: Call, lost: Callable[[], int | None]) -> Role:
    loop = compile_loop("stream_take", job.message, take=call)
    return in_slices(job, lambda words: {"received": loop(words, job.case.batch), "lost": lost()})


def batch_take(job: Job) -> Role:
    """Take all that is pending with each call."""
    import numpy as np

    sub = open_subscriber(job)
    take = require(sub.array, "no call for many messages")
    kind = np.dtype((np.void, job.case.size))

    def once(words: memoryview) -> Result:
        received = 0
        while words[control.TOTAL] != received or not received:
            if count := len(take(kind)):
                received += count
                words[control.RECEIVED] = received
        return {"received": received, "lost": sub.lost()}

    return in_slices(job, once)


# ------------------------------------------------------------------------------------------------------------ ping-pong


def ping(job: Job) -> Role:
    """Send and wait for the answer, both sides polling; half of a round trip is one way."""
    pub = open_publisher(job, "ping")
    yield None
    sub = open_subscriber(job, "pong")
    pub.await_subscribers(1)
    message, (send, take) = _values(job), _ways(job, pub, sub)
    once, timed = (compile_loop(name, message, send=send, take=take) for name in ("ping", "ping_timed"))
    words, batch = control.words(job.words_path), job.case.batch
    while True:
        warm_until, end_at = phases(job.case.seconds)
        means: list[float] = []
        trips: list[int] = []
        done = batch
        while (now := perf_counter_ns()) < end_at or not means:
            once(batch)
            if now >= warm_until:
                means.append((perf_counter_ns() - now) / batch)
                trips += timed(batch, 0)
            done += batch * (2 if now >= warm_until else 1)
        words[control.TOTAL] = done
        once(batch)
        # Reading the clock costs as much as a trip on the fastest systems: the figure comes from the trips without it.
        yield {**latency([trip / 2 for trip in trips]), "value": numbers.median(means) / 2}


def ping_asleep(job: Job) -> Role:
    """Sleep, send, and sleep until the answer is there; the other side has slept since the last ping."""
    pub = open_publisher(job, "ping")
    yield None
    sub = open_subscriber(job, "pong")
    pub.await_subscribers(1)
    timed = compile_loop("ping_timed", _values(job), send=pub.wake or pub.send, take=sub.block)
    pause_s = SLEEP_BEFORE_FRAME_S if job.case.frames else SLEEP_BEFORE_PING_S
    words, batch = control.words(job.words_path), job.case.batch
    while True:
        timed(batch, pause_s)  # the warm-up: the first wait of a process takes longer
        done = batch
        end_at = perf_counter_ns() + int(job.case.seconds * 1e9)
        trips: list[int] = []
        while not words[control.TOTAL]:
            done += batch
            if perf_counter_ns() >= end_at:
                words[control.TOTAL] = done
            trips += timed(batch, pause_s)
        yield latency([trip / 2 for trip in trips])


def pong(job: Job) -> Role:
    """Answer each ping, polling."""
    pub, sub = open_publisher(job, "pong"), open_subscriber(job, "ping")
    return _answers(job, pub, *_ways(job, pub, sub))


def pong_asleep(job: Job) -> Role:
    """Answer each ping, asleep until it comes."""
    pub, sub = open_publisher(job, "pong"), open_subscriber(job, "ping")
    return _answers(job, pub, pub.wake or pub.send, sub.block)


def _answers(job: Job, pub: Publisher, send: Call, take: Call) -> Role:
    loop = compile_loop("pong", _values(job), send=send, take=take)
    return in_slices(job, lambda words: {"served": loop(words, job.case.batch)}, pub)


def _values(job: Job) -> Any:
    return job.system_for("ping").write_values(job.message)


def _ways(job: Job, pub: Publisher, sub: Subscriber) -> tuple[Call, Call]:
    """How to send and how to take without sleeping: in place where that is wanted."""
    if job.case.frames and not sub.in_place:
        raise Unsupported("its frames are not delivered")
    if job.case.in_place and pub.in_place and sub.in_place:
        return pub.in_place, sub.in_place
    return pub.send, sub.poll


# -------------------------------------------------------------------------------------------------- a subscriber asleep


def fire(job: Job) -> Role:
    """Send a message with the time each 20 us."""
    pub = open_publisher(job)
    loop = compile_loop("fire", job.message[8:], send=pub.wake or pub.send)

    def once(words: memoryview) -> None:
        loop(int(1.25 * job.case.seconds * 1e9 / FIRE_GAP_NS), FIRE_GAP_NS)
        words[control.TOTAL] = 1
        loop(1, 0)

    return in_slices(job, once, pub)


def under_fire(job: Job) -> Role:
    """Sleep until each message comes, and measure its age. The first fifth is the warm-up."""
    loop = compile_loop("ages", None, take=open_subscriber(job).block)

    def once(words: memoryview) -> Result:
        ages = loop(words)
        return latency(ages[len(ages) // 5 :])

    return in_slices(job, once)


def idle_subscribe(job: Job) -> Role:
    """Sleep in one receive() until the end; the runner watches the process from outside."""
    loop = compile_loop("send", job.message, send=open_subscriber(job).block)
    return in_slices(job, lambda _: loop(1))


def idle_publish(job: Job) -> Role:
    """Be there, say nothing, and end it with one message."""
    pub = open_publisher(job)
    loop = compile_loop("send", job.message, send=pub.wake or pub.send)
    return in_slices(job, lambda _: loop(1), pub)

"""What the measured processes do.

Each role is a generator: it prepares, yields None when it is ready, and then one result each time it is resumed, which
is a slice of the measurement. The control words are 0 at the start of a slice.

Times are in nanoseconds. The result of the publisher's side has ``value``, the figure of the slice, and what belongs to
it; ``samples`` are single latencies, which the runner pools.
"""

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns
from typing import Any

from tools.bench import control, numbers
from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Unsupported
from tools.bench.job import Job
from tools.bench.loops import compile_loop

Result = dict[str, Any]
Role = Generator[Result | None, None, None]

CHUNK_NS = 2_000_000
SLEEP_BEFORE_PING_S = 0.002
SLEEP_BEFORE_FRAME_S = 0.01


def probe(job: Job) -> Role:
    """Import the system and say which version it is."""
    version = job.system_for("data").version()
    yield None
    yield {"version": version}


# ---------------------------------------------------------------------------------------------------- one process alone


def send(job: Job) -> Role:
    """Send again and again. The subscribers receive nothing."""
    pub = _publisher(job, job.system_for("data"))
    call = pub.in_place if job.in_place else pub.send
    if call is None:
        raise Unsupported("no way to send in place")
    yield None
    pub.await_subscribers(job.subscribers)
    loop = compile_loop("send", job.message, send=call)
    while True:
        yield repeat(loop, job.seconds)


def hold(job: Job) -> Role:
    """Be the subscribers that do not take anything."""
    held = [_subscriber(job, job.system_for("data")) for _ in range(job.subscribers)]
    yield None
    yield {"held": len(held)}


def pair(job: Job) -> Role:
    """Send and receive in one thread."""
    system = job.system_for("data")
    pub, sub = system.publisher(), system.subscriber()
    pub.await_subscribers(1)
    yield None
    loop = compile_loop("pair", system.write_values(job.message), send=pub.send, take=sub.stream or sub.poll)
    while True:
        yield repeat(loop, job.seconds)


def receive(job: Job) -> Role:
    """Receive where there is nothing."""
    system = job.system_for("data")
    pub, sub = system.publisher(), system.subscriber()
    pub.await_subscribers(1)
    yield None
    loop = compile_loop("receive", job.message, take=sub.poll)
    while True:
        yield repeat(loop, job.seconds)


def open_both(job: Job) -> Role:
    """Open a publisher and a subscriber of a topic that exists, or that must be created."""
    system = job.system_for("data")
    if not job.fresh:
        if not system.keeps_segment:
            raise Unsupported("no file stays for the next open")
        system.create()
    yield None
    while True:
        warm_until, end_at = phases(job.seconds)
        took: list[int] = []
        while (start := perf_counter_ns()) < end_at or not took:
            both = system.open_both()
            spent = perf_counter_ns() - start
            system.close_both(both)
            del both
            if job.fresh:
                system.remove()
            if start >= warm_until:
                took.append(spent)
        yield _latency(took)


# -------------------------------------------------------------------------------------------------------------- streams


def stream_send(job: Job) -> Role:
    """Publish one by one, so that nothing is lost."""
    system = job.system_for("data")
    pub = _publisher(job, system)
    call = pub.in_place if job.in_place and pub.in_place else pub.stream or pub.send
    return _sends(job, pub, call, credits_needed=not system.lossless)


def stream_wake(job: Job) -> Role:
    """Publish one by one to a receiver that may be asleep."""
    pub = _publisher(job, job.system_for("data"))
    return _sends(job, pub, pub.wake or pub.send, credits_needed=True)


def stream_take(job: Job) -> Role:
    """Take one by one until the publisher has sent its last."""
    sub = _subscriber(job, job.system_for("data"))
    call = sub.in_place if job.in_place else sub.stream or sub.poll
    if call is None:
        raise Unsupported("no way to take a message in place")
    return _takes(job, sub, call)


def stream_block(job: Job) -> Role:
    """Take one by one; sleep while nothing is there."""
    sub = _subscriber(job, job.system_for("data"))
    return _takes(job, sub, sub.block)


def batch_send(job: Job) -> Role:
    """Publish a whole array of messages with each call."""
    import numpy as np

    pub = _publisher(job, job.system_for("data"))
    if pub.many is None:
        raise Unsupported("no call for many messages")
    block = np.frombuffer(job.message * job.batch, np.uint8).reshape(job.batch, job.size)
    loop = compile_loop("stream_send", pub.rows(block), send=pub.many)
    yield None
    while True:
        yield stream(loop, job, calls=1, credits_needed=True)


def batch_take(job: Job) -> Role:
    """Take all that is pending with each call."""
    import numpy as np

    sub = _subscriber(job, job.system_for("data"))
    take = sub.array
    if take is None:
        raise Unsupported("no call for many messages")
    words, kind = control.words(job.words_path), np.dtype((np.void, job.size))
    yield None
    while True:
        received = 0
        while words[control.TOTAL] != received or not received:
            if count := len(take(kind)):
                received += count
                words[control.RECEIVED] = received
        yield {"received": received, "lost": sub.lost()}


# ------------------------------------------------------------------------------------------------------------ ping-pong


def ping(job: Job) -> Role:
    """Send and wait for the answer, both sides polling; half of a round trip is one way."""
    system = job.system_for("ping")
    pub = _publisher(job, system)
    yield None
    sub = _subscriber(job, job.system_for("pong"))
    pub.await_subscribers(1)
    message = system.write_values(job.message)
    send, take = _ways(job, pub, sub)
    once, timed = (compile_loop(name, message, send=send, take=take) for name in ("ping", "ping_timed"))
    words = control.words(job.words_path)
    while True:
        warm_until, end_at = phases(job.seconds)
        means: list[float] = []
        trips: list[int] = []
        done = job.batch
        while (now := perf_counter_ns()) < end_at or not means:
            once(job.batch)
            if now >= warm_until:
                means.append((perf_counter_ns() - now) / job.batch)
                trips += timed(job.batch, 0)
            done += job.batch * (2 if now >= warm_until else 1)
        words[control.TOTAL] = done
        once(job.batch)
        # Reading the clock costs as much as a trip on the fastest systems: the figure comes from the trips without it.
        yield {**_latency([trip / 2 for trip in trips]), "value": numbers.median(means) / 2}


def ping_asleep(job: Job) -> Role:
    """Sleep, send, and sleep until the answer is there; the other side has slept since the last ping."""
    system = job.system_for("ping")
    pub = _publisher(job, system)
    yield None
    sub = _subscriber(job, job.system_for("pong"))
    pub.await_subscribers(1)
    timed = compile_loop("ping_timed", system.write_values(job.message), send=pub.wake or pub.send, take=sub.block)
    pause_s = SLEEP_BEFORE_FRAME_S if job.frames else SLEEP_BEFORE_PING_S
    words = control.words(job.words_path)
    while True:
        timed(job.batch, pause_s)  # the warm-up: the first wait of a process takes longer
        done = job.batch
        end_at = perf_counter_ns() + int(job.seconds * 1e9)
        trips: list[int] = []
        while not words[control.TOTAL]:
            done += job.batch
            if perf_counter_ns() >= end_at:
                words[control.TOTAL] = done
            trips += timed(job.batch, pause_s)
        yield _latency([trip / 2 for trip in trips])


def pong(job: Job) -> Role:
    """Answer each ping, polling."""
    system = job.system_for("pong")
    pub, sub = _publisher(job, system), _subscriber(job, job.system_for("ping"))
    send, take = _ways(job, pub, sub)
    return _answers(job, pub, compile_loop("pong", system.write_values(job.message), send=send, take=take))


def pong_asleep(job: Job) -> Role:
    """Answer each ping, asleep until it comes."""
    system = job.system_for("pong")
    pub, sub = _publisher(job, system), _subscriber(job, job.system_for("ping"))
    loop = compile_loop("pong", system.write_values(job.message), send=pub.wake or pub.send, take=sub.block)
    return _answers(job, pub, loop)


# ----------------------------------------------------------------------------------------------------------------- idle


def idle_subscribe(job: Job) -> Role:
    """Sleep in one receive() until the end; the runner watches the process from outside."""
    sub = _subscriber(job, job.system_for("data"))
    yield None
    while True:
        compile_loop("take", job.message, take=sub.block)()
        yield {"received": 1}


def idle_publish(job: Job) -> Role:
    """Be there, say nothing, and end it with one message."""
    pub = _publisher(job, job.system_for("data"))
    yield None
    pub.await_subscribers(1)
    while True:
        compile_loop("send", job.message, send=pub.wake or pub.send)(1)
        yield {"sent": 1}


# -------------------------------------------------------------------------------------------------------------- helpers


def _publisher(job: Job, system: System) -> Publisher:
    return system.frame_publisher() if job.frames else system.publisher()


def _subscriber(job: Job, system: System) -> Subscriber:
    return system.frame_subscriber() if job.frames else system.subscriber()


def phases(seconds: float) -> tuple[int, int]:
    """Return when the warm-up is over, and when the measurement is."""
    now = perf_counter_ns()
    return now + int(seconds * 0.25e9), now + int(seconds * 1.25e9)


def repeat(loop: Callable[[int], None], seconds: float, count: int = 16) -> Result:
    """Run the loop in chunks of about 2 ms, beginning with `count` turns; the figure is the median cost of one turn."""
    warm_until, end_at = phases(seconds)
    costs: list[float] = []
    while (start := perf_counter_ns()) < end_at or not costs:
        loop(count)
        took = perf_counter_ns() - start
        if took < CHUNK_NS / 2:
            count *= 2
        elif start >= warm_until:
            costs.append(took / count)
    return {"value": numbers.median(costs), "best": min(costs)}


def stream(loop: Callable[..., Any], job: Job, *, calls: int, credits_needed: bool = True) -> Result:
    """Run the sending side of a stream; each batch takes that many calls."""
    room = job.depth - job.batch if credits_needed else 1 << 62
    count, took = loop(control.words(job.words_path), job.batch, calls, room, *phases(job.seconds))
    return {"value": count / took * 1e9, "messages": count}


def _ways(job: Job, pub: Publisher, sub: Subscriber) -> tuple[Any, Any]:
    """How to send and how to take without sleeping: in place where that is wanted."""
    if job.frames and not sub.in_place:
        raise Unsupported("its frames are not delivered")
    if job.in_place and pub.in_place and sub.in_place:
        return pub.in_place, sub.in_place
    return pub.send, sub.poll


def _sends(job: Job, pub: Publisher, call: Call, credits_needed: bool) -> Role:
    yield None
    pub.await_subscribers(1)
    loop = compile_loop("stream_send", job.message, send=call)
    while True:
        yield stream(loop, job, calls=job.batch, credits_needed=credits_needed)


def _takes(job: Job, sub: Subscriber, call: Call) -> Role:
    loop, words = compile_loop("stream_take", job.message, take=call), control.words(job.words_path)
    yield None
    while True:
        yield {"received": loop(words, job.batch), "lost": sub.lost()}


def _latency(samples: Sequence[float]) -> Result:
    return {"value": numbers.median(samples), "samples": samples}


def _answers(job: Job, pub: Publisher, loop: Callable[..., int]) -> Role:
    words = control.words(job.words_path)
    yield None
    pub.await_subscribers(1)
    while True:
        yield {"served": loop(words, job.batch)}


ROLES: dict[str, Callable[[Job], Role]] = {
    role.__name__: role
    for role in (
        *(probe, send, hold, pair, receive, open_both),
        *(stream_send, stream_wake, stream_take, stream_block, batch_send, batch_take),
        *(ping, pong, ping_asleep, pong_asleep, idle_subscribe, idle_publish),
    )
}

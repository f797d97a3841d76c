"""Roles of a process that sends messages to itself, or works on values; see `roles`."""

from collections.abc import Callable
from time import perf_counter_ns

from tools.bench import numbers
from tools.bench.adapters.base import Exchange, Values, WorkQueue
from tools.bench.floor.build import run_program
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.machine import cores
from tools.bench.queue_cases import SPARE
from tools.bench.roles import (
    Role,
    elapsed_ns,
    in_slices,
    open_publisher,
    open_subscriber,
    phases,
    require,
    sample,
    samples,
    turns,
)

LIST_MESSAGES = 64
WAITING_MESSAGES = 1024  # messages that wait before they are taken; at most the depth of the row
RANKS = 8
TRACKED_CHUNK = 512
VALUE = "ping"  # topic of the values, also where nobody watches: those who watch need not know


def probe(job: Job) -> Role:
    """Import the system and say which version it is."""
    version = job.system_for("data").version()
    return in_slices(job, lambda _: {"version": version})


def program(job: Job) -> Role:
    """Run a program of the floor, which has both sides and warms up by itself."""
    case = job.case
    words = (case.seconds, *cores(), case.size, case.batch, 1 << 20)
    return in_slices(job, lambda _: run_program(job.folder, case.program, *words))


# ------------------------------------------------------------------------------------------------------------- messages


def send(job: Job) -> Role:
    """Send again and again. The subscribers receive nothing."""
    pub = open_publisher(job)
    call = require(pub.in_place if job.case.in_place else pub.send, "no way to send in place")
    return turns(job, compile_loop("send", job.message, send=call), pub)


def hold(job: Job) -> Role:
    """Be the subscribers that do not take anything."""
    held = [open_subscriber(job) for _ in range(job.case.subscribers)]
    return in_slices(job, lambda _: {"held": len(held)})


def pair(job: Job) -> Role:
    """Send and receive in one thread."""
    system = job.system_for("data")
    pub, sub = system.publisher(), system.subscriber()
    message = system.write_values(job.message)
    return turns(job, compile_loop("pair", message, send=pub.send, take=sub.stream or sub.poll), pub)


def receive(job: Job) -> Role:
    """Receive where there is nothing."""
    pub, sub = open_publisher(job), open_subscriber(job)
    return turns(job, compile_loop("send", job.message, send=sub.poll), pub)


def exchange(job: Job) -> Role:
    """Send and receive one message after the other."""
    system = job.system_for("data")
    calls = system.exchange(job.message)
    return turns(job, compile_loop("pair", system.write_values(job.message), send=calls.send, take=calls.receive))


def send_list(job: Job) -> Role:
    """Send a list of messages with each call. The figure is the time for each message."""
    calls = job.system_for("data").exchange(job.message)
    return turns(job, compile_loop("send", calls.batch(LIST_MESSAGES), send=calls.many), messages=LIST_MESSAGES)


def drain(job: Job) -> Role:
    """Take waiting messages one by one, until no message waits."""
    calls = job.system_for("data").exchange(job.message)
    return _drains(job, calls, compile_loop("drain", None, take=calls.receive))


def drain_in_loop(job: Job) -> Role:
    """Take waiting messages in a ``for`` loop."""
    calls = job.system_for("data").exchange(job.message)
    return _drains(job, calls, compile_loop("each", None, take=calls.each))


def _drains(job: Job, calls: Exchange, take: Callable[[int], None]) -> Role:
    fill = compile_loop("send", calls.batch(WAITING_MESSAGES), send=calls.many)

    def once() -> float:
        fill(1)
        return elapsed_ns(take, WAITING_MESSAGES) / WAITING_MESSAGES

    return in_slices(job, lambda _: {"value": numbers.median(sample(job.case.seconds, once))})


def open_both(job: Job) -> Role:
    """Open a publisher and a subscriber of a topic that exists, or that must be created."""
    system, fresh = job.system_for("data"), job.case.fresh
    if not fresh:
        require(system.keeps_segment or None, "no file stays for the next open")
        system.create()

    def once() -> int:
        start = perf_counter_ns()
        both = system.open_both()
        spent = perf_counter_ns() - start
        system.close_both(both)
        del both
        if fresh:
            system.remove()
        return spent

    return samples(job, once)


def track(job: Job) -> Role:
    """Send and handle messages, tracked and plain in turns. The figure is the additional time of a tracked message."""
    calls = job.system_for("data").handling()
    plain, tracked = (
        compile_loop("pair", job.message, send=calls.send, take=take) for take in (calls.plain, calls.tracked)
    )

    def once() -> float:
        before = elapsed_ns(plain, TRACKED_CHUNK)
        return (elapsed_ns(tracked, TRACKED_CHUNK) - before) / TRACKED_CHUNK

    return in_slices(job, lambda _: {"value": numbers.median(sample(job.case.seconds, once))})


# ---------------------------------------------------------------------------------------------------------- full queues


def queue_pair(job: Job) -> Role:
    """Send and receive with messages waiting, so that each turn takes the oldest one."""
    queue = _fill(job)
    return turns(job, compile_loop("pair", job.message, send=queue.send, take=queue.receive))


def ack_pair(job: Job) -> Role:
    """Send, take, and acknowledge."""
    queue = _fill(job)
    take = require(queue.take, "no acknowledgement")
    return turns(job, compile_loop("pair", job.message, send=queue.send, take=take._replace(form=f"{take.form}.ack()")))


def rank_pair(job: Job) -> Role:
    """Send and receive, with the next priority each time."""
    queue = _fill(job, ranked=True)
    loops = [
        compile_loop("pair", job.message, send=queue.send_ranked(rank), take=queue.receive) for rank in range(RANKS)
    ]

    def loop(count: int) -> None:
        for _ in range(count // (RANKS * RANKS)):  # a chunk has a multiple of 64 turns
            for pair in loops:
                pair(RANKS)

    return turns(job, loop)


def _fill(job: Job, *, ranked: bool = False) -> WorkQueue:
    queue = job.system_for("data").queue()
    calls = [queue.send_ranked(rank) for rank in range(RANKS)] if ranked else [queue.send]
    loops = [compile_loop("send", job.message, send=call) for call in calls]
    for number in range(job.case.depth - SPARE):
        loops[number % len(loops)](1)
    return queue


# --------------------------------------------------------------------------------------------------------------- values


def overwrite(job: Job) -> Role:
    """Write one value again and again."""
    system = job.system_for(VALUE)
    return turns(job, compile_loop("send", system.write_values(job.message), send=system.writing()))


def look(job: Job) -> Role:
    """Read one value again and again."""
    system = job.system_for(VALUE)
    compile_loop("send", system.write_values(job.message), send=system.writing())(1)
    return turns(job, compile_loop("send", None, send=system.reading()))


def write_many(job: Job) -> Role:
    """Write all values with one call."""
    values = job.system_for(VALUE).values()
    return turns(job, compile_loop("send", values.rows, send=values.write))


def read_many(job: Job) -> Role:
    """Read all values with one call."""
    values = _written_values(job)
    return turns(job, compile_loop("send", values.room, send=values.read))


def read_instant(job: Job) -> Role:
    """Read all values as of one instant."""
    values = _written_values(job)
    return turns(job, compile_loop("send", values.room, send=require(values.instant, "no such call")))


def find_changes(job: Job) -> Role:
    """Time the question for overwritten values. The writes before each question are not timed."""
    values = _written_values(job)
    touch = compile_loop("send", values.rows, send=require(values.touch, "no such call"))
    find = compile_loop("send", None, send=require(values.changes, "no such call"))

    def once() -> int:
        touch(1)
        return elapsed_ns(find, 1)

    find(1)
    return samples(job, once)


def _written_values(job: Job) -> Values:
    values = job.system_for(VALUE).values()
    compile_loop("send", values.rows, send=values.write)(1)
    return values


def write_first(job: Job) -> Role:
    """Write the first value for a while; the figure is what both wrote in a second."""
    return _writes(job, 0, "value")


def write_second(job: Job) -> Role:
    """Write the second value at the same time; with one value, write this value."""
    return _writes(job, 1 % job.case.depth, "rate")


def _writes(job: Job, number: int, name: str) -> Role:
    system = job.system_for(VALUE)
    if job.case.depth == 1:
        require(system.shares_values or None, "a value has one writer")
    loop = compile_loop("until", system.write_values(job.message), send=system.writing(number))
    loop(1, 0, 0)  # there from now on
    return in_slices(job, lambda _: {name: loop(job.case.batch, *phases(job.case.seconds))[0]})

"""What the measured processes do with values that are overwritten, and with messages that are tracked; see `roles`."""

import time
from collections.abc import Callable

from tools.bench import control, numbers
from tools.bench.adapters.base import Call, Unsupported, Values
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.roles import Role, phases, repeat

TOPIC = "ping"  # of those who are measured alone, too: those who watch need not know
GLANCE_S = 0.001
WATCH_GAP_NS = 250
CHUNK = 512

# -------------------------------------------------------------------------------------------------------- single values


def overwrite(job: Job) -> Role:
    """Write one value again and again."""
    system = job.system_for(TOPIC)
    return _turns(job, compile_loop("send", system.write_values(job.message), send=system.writing()))


def look(job: Job) -> Role:
    """Read one value again and again."""
    system = job.system_for(TOPIC)
    compile_loop("send", system.write_values(job.message), send=system.writing())(1)
    return _turns(job, compile_loop("receive", None, take=system.reading()))


def watch(job: Job) -> Role:
    """Read the value of others all the time, at one pace in all systems: a fast reader hurts its writer more."""
    return _watching(job, 100, 0.0)


def glance(job: Job) -> Role:
    """Read it now and then, and leave the core to those who are measured there."""
    return _watching(job, 1, GLANCE_S)


def _watching(job: Job, times: int, pause_s: float) -> Role:
    loop = compile_loop("paced", None, send=job.system_for(TOPIC).reading())
    words = control.words(job.words_path)
    yield None
    while True:
        while not words[control.TOTAL]:
            loop(times, WATCH_GAP_NS)
            if pause_s:
                time.sleep(pause_s)
        yield {}


def _turns(job: Job, loop: Callable[[int], None]) -> Role:
    words = control.words(job.words_path)
    yield None
    while True:
        result = repeat(loop, job.seconds)
        words[control.TOTAL] = 1
        yield result


# ------------------------------------------------------------------------------------------- two who write all the time


def write_first(job: Job) -> Role:
    """Write the first value for a while; the figure is what both wrote in a second."""
    return _writing(job, 0)


def write_second(job: Job) -> Role:
    """Write the second value at the same time; with one value, write this value."""
    return _writing(job, 1 % job.depth)


def _writing(job: Job, number: int) -> Role:
    system = job.system_for(TOPIC)
    if job.depth == 1 and not system.shares_values:
        raise Unsupported("a value has one writer")
    loop = compile_loop("until", system.write_values(job.message), send=system.writing(number))
    loop(1, 0, 0)  # there from now on
    yield None
    while True:
        rate, _ = loop(job.batch, *phases(job.seconds))
        yield {"value": rate, "rate": rate}


# ------------------------------------------------------------------------------------------------------- many at once


def write_many(job: Job) -> Role:
    """Write all values with one call."""
    values = job.system_for(TOPIC).values()
    return _turns(job, compile_loop("send", values.rows, send=values.write))


def read_many(job: Job) -> Role:
    """Read all values with one call."""
    values = _time_writes(job)
    return _turns(job, compile_loop("receive", values.room, take=values.read))


def read_instant(job: Job) -> Role:
    """Read all values as of one instant."""
    values = _time_writes(job)
    return _turns(job, compile_loop("receive", values.room, take=_offer(values.instant)))


def find_changes(job: Job) -> Role:
    """Time the question for overwritten values. The writes before each question are not timed."""
    values = _time_writes(job)
    touch = compile_loop("send", values.rows, send=_offer(values.touch))
    find = compile_loop("receive", None, take=_offer(values.changes))
    find(1)
    yield None
    while True:
        warm_until, end_at = phases(job.seconds)
        took: list[int] = []
        while (now := time.perf_counter_ns()) < end_at or not took:
            touch(1)
            start = time.perf_counter_ns()
            find(1)
            if now >= warm_until:
                took.append(time.perf_counter_ns() - start)
        yield {"value": numbers.median(took), "samples": took}


def _time_writes(job: Job) -> Values:
    values = job.system_for(TOPIC).values()
    compile_loop("send", values.rows, send=values.write)(1)
    return values


def _offer(call: Call | None) -> Call:
    if call is None:
        raise Unsupported("no such call")
    return call


# -------------------------------------------------------------------------------------------------------------- tracked


def track(job: Job) -> Role:
    """Send and handle messages, tracked and plain in turns; the figure is what tracking adds to one."""
    handling = job.system_for(TOPIC).handling()
    send, takes = handling.send, (handling.plain, handling.tracked)
    loops = [compile_loop("pair", job.message, send=send, take=take) for take in takes]
    yield None
    while True:
        warm_until, end_at = phases(job.seconds)
        later: list[float] = []
        while (now := time.perf_counter_ns()) < end_at or not later:
            plain, tracked = (_cost(loop) for loop in loops)
            if now >= warm_until:
                later.append(tracked - plain)
        yield {"value": numbers.median(later), "plain": plain}


def _cost(loop: Callable[[int], None]) -> float:
    start = time.perf_counter_ns()
    loop(CHUNK)
    return (time.perf_counter_ns() - start) / CHUNK


ROLES: dict[str, Callable[[Job], Role]] = {
    role.__name__: role
    for role in (
        *(overwrite, look, watch, glance, write_first, write_second),
        *(write_many, read_many, read_instant, find_changes, track),
    )
}

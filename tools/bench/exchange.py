"""Roles of a process that sends messages to itself: single calls, lists and loops. See `roles`."""

from collections.abc import Callable
from time import perf_counter_ns

from tools.bench import numbers
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.roles import Result, Role, phases, repeat

LIST_MESSAGES = 64
WAITING_MESSAGES = 1024  # messages that wait before they are taken; at most the depth of the row


def exchange(job: Job) -> Role:
    """Send and receive one message after the other."""
    system = job.system_for("data")
    calls = system.exchange(job.message)
    yield None
    loop = compile_loop("pair", system.write_values(job.message), send=calls.send, take=calls.receive)
    while True:
        yield repeat(loop, job.seconds)


def send_list(job: Job) -> Role:
    """Send a list of messages with each call. The figure is the time in ns for each message."""
    calls = job.system_for("data").exchange(job.message)
    yield None
    loop = compile_loop("send", calls.batch(LIST_MESSAGES), send=calls.many)
    while True:
        yield {name: figure / LIST_MESSAGES for name, figure in repeat(loop, job.seconds).items()}


def drain(job: Job) -> Role:
    """Take waiting messages one by one, until no message waits."""
    return _drain_messages(job, "drain")


def drain_in_loop(job: Job) -> Role:
    """Take waiting messages in a ``for`` loop."""
    return _drain_messages(job, "each")


def _drain_messages(job: Job, loop_name: str) -> Role:
    calls = job.system_for("data").exchange(job.message)
    yield None
    fill = compile_loop("send", calls.batch(WAITING_MESSAGES), send=calls.many)
    take = compile_loop(loop_name, None, take=calls.receive if loop_name == "drain" else calls.each)
    while True:
        yield _time_drains(fill, take, job.seconds)


def _time_drains(fill: Callable[[int], None], take: Callable[[int], None], seconds: float) -> Result:
    """Return the median time of one message in ns. Only `take` is timed."""
    warm_until, end_at = phases(seconds)
    costs: list[float] = []
    while (now := perf_counter_ns()) < end_at or not costs:
        fill(1)
        start = perf_counter_ns()
        take(WAITING_MESSAGES)
        if now >= warm_until:
            costs.append((perf_counter_ns() - start) / WAITING_MESSAGES)
    return {"value": numbers.median(costs), "best": min(costs)}


ROLES: dict[str, Callable[[Job], Role]] = {role.__name__: role for role in (exchange, send_list, drain, drain_in_loop)}
